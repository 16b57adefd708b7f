"""Jobs on several GPU types: validator and paces against sums and minima of a table, readers against bad files."""
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.baselines import Tiresias
from sched_lab.hadar.fluid import makespan_bound_s
from sched_lab.hadar.model import (
    Allocation,
    Cluster,
    Jobs,
    allocation_of,
    check_allocation,
    check_simulation,
    figure_one,
    gpus_in_use,
    read_workload,
    round_rate,
    toy_workload,
    workers_that_fit,
)
from sched_lab.hadar.policies import policy_of
from sched_lab.hadar.simulation import run_copies, run_rounds
from sched_lab.lab.frames import InputError
from tests.hadar.cases import GANGS, jobs_of, random_gangs, random_workload


def places_of(table: np.ndarray) -> dict[int, dict[int, int]]:
    return {job: dict(enumerate(row.tolist())) for job, row in enumerate(table)}


@st.composite
def problems(draw):
    """Draw a cluster, jobs, and a table (jobs, nodes) of GPUs that may or may not be allowed."""
    num_jobs = draw(st.integers(1, 3))
    num_nodes = draw(st.integers(1, 3))
    num_types = draw(st.integers(1, 3))

    def whole(low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(st.integers(low, high), min_size=size, max_size=size)), np.int64).reshape(shape)

    cluster = Cluster(whole(0, num_types - 1, (num_nodes,)), whole(1, 3, (num_nodes,)))
    rate = whole(0, 3, (num_jobs, num_types)).astype(float)
    spread = np.minimum(rate, whole(0, 3, (num_jobs, num_types)))
    jobs = jobs_of(rate, workers=whole(1, 4, (num_jobs,)))._replace(spread_rate=spread)
    return cluster, jobs, whole(0, 2, (num_jobs, num_nodes))


def plain_pace(cluster: Cluster, jobs: Jobs, job: int, row: np.ndarray) -> float:
    """Find the slowest type of a gang; its spread rate if there is more than one node."""
    nodes = [node for node, gpus in enumerate(row) if gpus > 0]
    rate = jobs.rate if len(nodes) == 1 else jobs.spread_rate
    return min((float(rate[job, cluster.node_type[node]]) for node in nodes), default=0.0)


# --- laws ------------------------------------------------------------------------------------------------------------

@settings(max_examples=150, deadline=None)
@given(problems())
def test_exactly_the_allocations_of_p1_pass(problem):
    cluster, jobs, table = problem
    runs = table.sum(1) > 0
    allowed = ((table.sum(0) <= cluster.node_gpus).all() and (table.sum(1) == jobs.workers)[runs].all()
               and all(plain_pace(cluster, jobs, job, table[job]) > 0 for job in np.flatnonzero(runs)))
    if allowed:
        check_allocation(cluster, jobs, allocation_of(places_of(table)))
    else:
        with pytest.raises(ValueError, match="constraint 1[bde]"):
            check_allocation(cluster, jobs, allocation_of(places_of(table)))


@settings(max_examples=150, deadline=None)
@given(problems())
def test_the_slowest_worker_sets_the_pace(problem):
    cluster, jobs, table = problem
    paces = [plain_pace(cluster, jobs, job, row) for job, row in enumerate(table)]
    assert round_rate(cluster, jobs, allocation_of(places_of(table))).tolist() == paces
    assert gpus_in_use(cluster, allocation_of(places_of(table))).tolist() == table.sum(0).tolist()


@settings(max_examples=150, deadline=None)
@given(problems())
def test_a_gang_fits_if_some_allocation_is_allowed(problem):
    cluster, jobs, _ = problem
    most = workers_that_fit(cluster, jobs.rate, jobs.spread_rate)
    rows = [np.array(row) for row in product(*(range(gpus + 1) for gpus in cluster.node_gpus))]
    for job in range(len(jobs.steps)):
        possible = {int(row.sum()) for row in rows if plain_pace(cluster, jobs, job, row) > 0}
        assert most[job] == max(possible, default=0)
        assert possible == set(range(1, int(most[job]) + 1))  # a smaller gang fits too


# --- what is no list of places ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(("job", "node", "gpus", "message"), [
    ([0], [0, 1], [3], "not equally many"),
    ([0], [0], [3, 1], "not equally many"),
    ([3], [0], [3], "job 3 does not exist"),
    ([-1], [0], [3], "job -1 does not exist"),
    ([0], [3], [3], "node 3 does not exist"),
    ([0, 0], [0, 1], [2, 0], "job 0 has 0 GPUs on a node"),
    ([1, 0], [0, 1], [2, 3], "not sorted"),
    ([0, 0], [1, 1], [1, 2], "not sorted by job and node, or one is there twice"),
])
def test_what_is_no_list_of_places_is_refused(job, node, gpus, message):
    three = figure_one()
    with pytest.raises(ValueError, match=message):
        check_allocation(three.cluster, three.jobs, Allocation(*(np.array(part) for part in (job, node, gpus))))


def test_a_job_without_work_or_before_its_arrival_is_refused():
    three = figure_one()
    both = allocation_of({0: {1: 3}, 1: {0: 2}})
    check_allocation(three.cluster, three.jobs, both, now_s=0.0, remaining=np.ones(3))
    with pytest.raises(ValueError, match="1a .work.: job 1"):
        check_allocation(three.cluster, three.jobs, both, remaining=np.array([1.0, 0.0, 0.0]))
    late = three.jobs._replace(arrival_s=np.array([5.0, 0.0, 0.0]))
    check_allocation(three.cluster, late, both, now_s=5.0)
    with pytest.raises(ValueError, match="1e .arrival.: job 0"):
        check_allocation(three.cluster, late, both, now_s=4.9)
    second = three.jobs._replace(arrival_s=np.array([0.0, 5.0, 0.0]))
    with pytest.raises(ValueError, match="1e .arrival.: job 1"):
        check_allocation(three.cluster, second, both, now_s=4.9)


# --- readers ---------------------------------------------------------------------------------------------------------

HEAD = "name,arrival_s,steps,workers,model\n"
GOOD = {"jobs": HEAD + "a,0,10,1,LM\n", "cluster": "node,type,gpus\nn,v,2\nm,k,2\n",
        "throughputs": "key,workers,v,k\nLM,1,2,1\nLM,3,5,0\nBig,1,0,0\n"}


def read_texts(folder: Path, **texts: str):
    files = []
    for name, text in (GOOD | texts).items():
        files.append(folder / f"{name}.csv")
        files[-1].write_text(text)
    return read_workload(*files)


def test_a_small_workload_is_read(tmp_path):
    workload = read_texts(tmp_path)
    assert workload.type_name == ("v", "k") and workload.node_name == ("n", "m") and workload.num_gpus == 4
    assert workload.jobs.rate.tolist() == workload.jobs.spread_rate.tolist() == [[2, 1]]
    assert workload.jobs.weight.tolist() == [1]


def test_columns_without_a_name_are_no_type(tmp_path):
    # what pandas writes when the index is not left out
    workload = read_texts(tmp_path, throughputs=",key,workers,v,k\n0,LM,1,2,1\n")
    assert workload.type_name == ("v", "k")


@pytest.mark.parametrize(("texts", "message"), {
    "no rates": ({"throughputs": "key,workers\nLM,1\n"}, "no column with rates"),
    "spread of nothing": ({"throughputs": "key,workers,v,k_spread\nLM,1,2,1\n"}, "column k_spread: .*no such GPU type"),
    "rate below 0": ({"throughputs": "key,workers,v,k\nLM,1,-2,1\n"}, "row 2, column v: -2 is negative"),
    "no rate": ({"throughputs": "key,workers,v,k\nLM,1,,1\n"}, "row 2, column v"),
    "twice": ({"throughputs": "key,workers,v,k\nLM,1,2,1\nLM,1,3,1\n"}, "row 3: 'LM' with 1 workers is there twice"),
    "only spread": ({"throughputs": "key,workers,v,k,k_spread\nLM,2,2,0,1\n"}, "row 2, column k: .*not on one node"),
    "half a worker": ({"throughputs": "key,workers,v,k\nLM,0.5,2,1\n"}, "column workers"),
    "unknown type": ({"cluster": "node,type,gpus\nn,a100,2\n"}, "row 2, column type: .*'a100'"),
    "no GPU": ({"cluster": "node,type,gpus\nn,v,0\n"}, "row 2, column gpus"),
    "node twice": ({"cluster": "node,type,gpus\nn,v,2\nn,k,2\n"}, "row 3, column node: 'n' is already in row 2"),
    "job twice": ({"jobs": GOOD["jobs"] + "a,0,10,1,LM\n"}, "row 3, column name: 'a' is already in row 2"),
    "near": ({"jobs": HEAD + "a,0,10,1,LMM\n"}, "column model: .*did you mean LM"),
    "other gang": ({"jobs": HEAD + "a,0,10,2,LM\n"}, "column workers: .*for 1, 3 workers"),
    "too large": ({"jobs": HEAD + "a,0,10,3,LM\n"},
                  "row 2, column workers: .*wants 3 workers, but at most 2 GPUs"),
    "nowhere": ({"jobs": HEAD + "a,0,10,1,Big\n"}, "throughput 0 on every GPU type"),
    "no arrival": ({"jobs": HEAD + "a,,10,1,LM\n"}, "row 2, column arrival_s"),
    "endless work": ({"jobs": HEAD + "a,0,inf,1,LM\n"}, "row 2, column steps"),
    "no worker": ({"jobs": HEAD + "a,0,9,0,LM\n"}, "row 2, column workers"),
    "no work": ({"jobs": HEAD + "a,0,0,1,LM\n"}, "column steps"),
    "before time": ({"jobs": HEAD + "a,-1,10,1,LM\n"}, "column arrival_s: -1 is negative"),
    "no weight": ({"jobs": "name,arrival_s,steps,workers,model,weight\na,0,10,1,LM,0\n"}, "column weight"),
}.values())
def test_what_is_wrong_is_named_with_row_and_column(tmp_path, texts, message):
    with pytest.raises(InputError, match=message):
        read_texts(tmp_path, **texts)


def test_a_gang_that_needs_two_nodes_is_read_if_it_can_be_spread(tmp_path):
    # three workers, nodes of two GPUs; both types run LM
    texts = {"throughputs": "key,workers,v,k\nLM,3,5,1\n", "jobs": "name,arrival_s,steps,workers,model\na,0,10,3,LM\n"}
    workload = read_texts(tmp_path, **texts)
    check_allocation(workload.cluster, workload.jobs, allocation_of({0: {0: 2, 1: 1}}))


# --- whole runs ------------------------------------------------------------------------------------------------------

seeds = st.integers(0, 10**6)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, name=st.sampled_from(GANGS), whole_steps=st.booleans())
def test_every_run_of_the_engine_passes_and_is_no_faster_than_the_bound(seed, name, whole_steps):
    work = random_workload(seed)
    fast = work.jobs._replace(rate=np.ceil(work.jobs.rate), spread_rate=np.ceil(work.jobs.spread_rate))
    work = replace(work, jobs=fast)
    run = run_rounds(work, policy_of(name), whole_steps=whole_steps)
    check_simulation(work, run)
    assert run.end_s.max() >= makespan_bound_s(work.cluster, work.jobs) * (1 - 1e-9)
    assert 0 < run.gru <= 1 + 1e-9 and 0 < run.cru <= 1 + 1e-9


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_every_run_of_copies_passes(seed):
    work = random_gangs(seed, one_gpu=True)
    check_simulation(work, run_copies(work))


BROKEN = {  # what is done to a run of the toy, and what is said to it
    "1a (work): job 0 can have done": lambda run: {"history": run.history[run.history["job"] != 0]},
    "1b (pace): job 5 cannot run where it is": lambda run: {"history": run.history.assign(
        node=run.history["node"].where(run.history["job"] != 5, 2))},
    "1c (end): job 1 does not end": lambda run: {"end_s": run.end_s - 1e4 * (np.arange(6) == 1)},
    "1c (end): job 2 does not end": lambda run: {"end_s": run.end_s + 1e4 * (np.arange(6) == 2)},
    "1d (capacity): node": lambda run: {"history": run.history.assign(node=0)},
    "1e (gang): job": lambda run: {"history": run.history.assign(gpus=1)},
    "job 3 does not start": lambda run: {"start_s": run.start_s - 360.0 * (np.arange(6) == 3)},
    "interval 0 is not over": lambda run: {"intervals": run.intervals.assign(length_s=400.0)},
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_run_that_breaks_a_constraint_is_refused(message):
    work = toy_workload()
    run = run_rounds(work, Tiresias())
    check_simulation(work, run)
    with pytest.raises(ValueError, match=re.escape(message)):
        check_simulation(work, replace(run, **BROKEN[message](run)))


def test_a_run_before_the_arrival_is_refused():
    work = toy_workload()
    run = run_rounds(work, Tiresias())
    later = replace(work, jobs=work.jobs._replace(arrival_s=work.jobs.arrival_s + 1.0))
    with pytest.raises(ValueError, match=re.escape("1e (arrival): job")):
        check_simulation(later, run)


@pytest.mark.parametrize(("changes", "message"), [
    ({"gpus": 2}, "1d (capacity): node"), ({"steps": 10**9}, "1b (pace): job"), ({"steps": 0}, "1a (work): job 0")])
def test_a_run_of_copies_that_breaks_a_constraint_is_refused(changes, message):
    work = random_gangs(3, one_gpu=True)
    run = run_copies(work)
    with pytest.raises(ValueError, match=re.escape(message)):
        check_simulation(work, replace(run, history=run.history.assign(**changes)))
    later = replace(work, jobs=work.jobs._replace(arrival_s=work.jobs.arrival_s + 1.0))
    with pytest.raises(ValueError, match=re.escape("1e (arrival): job")):
        check_simulation(later, run)
