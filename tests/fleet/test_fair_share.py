"""Slurm's fair tree: against its documentation, against a real slurmctld, and in cases by hand."""
from pathlib import Path

import numpy as np
import pytest

from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.fair_share import Share, charge, decay, fair_share_of, rank_users, read_shares
from sched_lab.fleet.replay.slurm import SlurmQueue, billing_in, read_slurm_queue
from sched_lab.lab.frames import InputError
from tests.fleet import plain_slurm
from tests.fleet.problems import texts, timed

TRIAL = Path(__file__).parents[2] / "data" / "slurm" / "shares"
pytestmark = pytest.mark.usefixtures("python_itself")
HEAD = "Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare\n"
TWO = (Share("root", "", -1, 0), Share("a", "", 0, 1), Share("a", "ann", 1, 1), Share("b", "", 0, 1),
       Share("b", "bob", 3, 1))


def tree_of(shares, used):
    tree = fair_share_of(shares, np.array([next(one.user for one in shares if one.user)], object), None, np.ones(1), 60)
    tree.used[:] = used
    rank_users(tree)
    return {(one.account, one.user): tree.factor[row] for row, one in enumerate(shares) if one.user}


@pytest.mark.parametrize("seed", range(60))
def test_ranks_are_those_of_the_rules_with_all_their_ties(seed):
    rng = np.random.default_rng(seed)
    shares, accounts = [Share("root", "", -1, 0)], [0]
    for name in map(str, range(int(rng.integers(1, 14)))):
        above = int(rng.choice(accounts))
        if rng.random() < 0.4:
            accounts.append(len(shares))
            shares.append(Share(name, "", above, int(rng.integers(0, 3))))
        else:
            shares.append(Share(shares[above].account, name, above, int(rng.integers(-1, 3))))
    shares.append(Share("root", "last", 0, 1))
    used = np.zeros(len(shares))
    for row, one in enumerate(shares):
        own = float(rng.integers(0, 3)) if one.user else 0
        while own and row >= 0:
            used[row] += own
            row = shares[row].above
    assert tree_of(tuple(shares), used) == plain_slurm.fair_tree(shares, used)


def test_ranks_are_those_that_a_real_slurm_printed():
    shares = read_shares(TRIAL / "shares.txt")
    rows = [line.split("|") for line in (TRIAL / "shares.txt").read_text().splitlines()[1:]]
    ours = tree_of(shares, [float(row[4]) for row in rows])
    theirs = {(row[0].strip(), row[1]): float(row[6]) for row in rows if row[1]}
    assert len(set(theirs.values())) > 5
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_who_has_used_less_goes_first_and_use_fades():
    """Ann has used 100 s of 2 CPUs, Bob nothing: he goes first. After two half-lives her use is a quarter."""
    fair = fair_share_of(TWO, np.array(["ann", "bob"], object), None, np.array([2.0, 1.0]), 1000)
    charge(fair, 0, 0, 100)
    assert fair.used[[2, 1, 0]] == pytest.approx(200 * (1 - 0.693 / 1000)**100) and fair.used[4] == 0
    charge(fair, 0, 0, 100)  # is charged once
    before = fair.used[2]
    rank_users(fair)
    assert (fair.factor[2], fair.factor[4]) == (0.5, 1)
    decay(fair, 2000)
    assert fair.used[2] == pytest.approx(before / 4, rel=0.01)


def test_the_queue_lets_those_go_first_who_have_used_less():
    """One node has two GPUs: Ann's first job runs there, her second and Bob's wait. By age and size hers is first."""
    problem = timed([(0, 100, 2, 1000), (1, 50, 2, 1000), (2, 50, 2, 1000)], user=texts(["ann", "ann", "bob"]))
    slurm = SlurmQueue(age_weight=10, has_weights=True, test_s=0, report_s=0, interval_s=1, calc_period_s=10)
    fair = slurm._replace(shares=TWO, fair_share_weight=1000)
    order = [np.argsort(replay(problem, "fgd", backfill="slurm", slurm=one).start_s).tolist() for one in (slurm, fair)]
    assert order == [[0, 1, 2], [0, 2, 1]]


def test_a_bill_counts_cpus_memory_and_gpus():
    assert billing_in('"CPU=1.0,Mem=0.25G,GRES/gpu=2.5"', "slurm.conf") == (1, 0.25 / 1024, 2.5)
    for text in ("CPU=1,Node=3", "CPU=1G", "CPU=much"):
        with pytest.raises(InputError, match="TRESBillingWeights"):
            billing_in(text, "slurm.conf")


@pytest.mark.parametrize(("text", "words"), [
    ("Account|User\nroot|\n", "row 1: no column RawShares"),
    (HEAD + "root||||||\n a||1\n", "row 3: 3 cells under 7 columns"),
    (HEAD + "root||||0||\n a||parent||0||\n", "row 3, column RawShares: an account with the shares of the one above"),
    (HEAD + "root||||0||\n a|ann|some||0||\n", "row 3, column RawShares: 'some' is no number of shares"),
    (HEAD + "root||||0||\n   a|ann|1||0||\n", "row 3, column Account: a stands deeper"),
    (HEAD + "root||||0||\n a||1||0||\n", "no line has a user")])
def test_a_wrong_table_of_shares_is_refused_by_row(tmp_path, text, words):
    (tmp_path / "shares.txt").write_text(text)
    with pytest.raises(InputError, match=words):
        read_shares(tmp_path / "shares.txt")


def test_shares_need_a_weight_and_somebody_who_has_them(tmp_path):
    (tmp_path / "slurm.conf").write_text("ClusterName=lab\nPriorityWeightFairshare=10\n")
    with pytest.raises(InputError, match="count nothing without"):
        read_slurm_queue(tmp_path / "slurm.conf", TRIAL / "shares.txt")
    with pytest.raises(InputError, match="no task is of a user with shares: 'eve' of account ''"):
        fair_share_of(TWO, np.array(["eve"], object), None, np.ones(1), 1)
    without = read_slurm_queue(TRIAL / "slurm.conf")
    assert without.unmodelled == ("PriorityWeightFairshare=10000",) and not without.fair_share_weight
