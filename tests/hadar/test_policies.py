"""The table of policies: one record makes and runs a scheduler, and whoever uses it asks for no name."""
import numpy as np
import pytest

from sched_lab.hadar import policies, report
from sched_lab.hadar.baselines import Gavel, Tiresias, YarnCs
from sched_lab.hadar.model import check_simulation, figure_one, toy_workload
from sched_lab.hadar.planned import Planned
from sched_lab.hadar.policies import POLICIES, options_of, policy_of, simulate
from sched_lab.hadar.primal_dual import Hadar
from sched_lab.hadar.simulation import HadarE, run_copies, run_rounds
from sched_lab.hadar.workload import default_throughputs, draw_workload
from sched_lab.lab.frames import InputError
from sched_lab.lab.records import PolicyRecord, PolicyTable
from studies.testbed import node_workload
from tests.hadar.cases import FORKED, GANGS

ENGINE = {"round_s": 90.0, "restart_s": 5.0}
MADE = {
    "hadar": Hadar(**ENGINE), "hadar-inv": Hadar("inv", **ENGINE), "hadar-sticky": Hadar(sticky=True, **ENGINE),
    "hadare": HadarE(slot_s=90.0, overhead_s=5.0), "hadare-longest": HadarE("longest", slot_s=90.0, overhead_s=5.0),
    "gavel-maxmin": Gavel("maxmin"), "gavel-makespan": Gavel("makespan"), "gavel-sum": Gavel("sum"),
    "tiresias": Tiresias(), "yarn-cs": YarnCs(), "planned": Planned(**ENGINE),
    "planned-area": Planned(**ENGINE, by_area=True)}


@pytest.mark.parametrize("name", POLICIES)
def test_a_name_stands_for_a_fresh_scheduler_that_is_told_the_length_of_rounds(name):
    made = policy_of(name, 90.0, 5.0)
    assert type(made) is type(MADE[name]) and options_of(made) == options_of(MADE[name])
    ours, theirs = (getattr(getattr(one, "shares", None), "args", None) for one in (made, MADE[name]))  # of Gavel
    assert ours == theirs
    lengths = {"round_s", "slot_s", "restart_s", "overhead_s"} & options_of(made).keys()
    assert len(lengths) == (2 if POLICIES[name].options else 0)
    assert policy_of(name) is not policy_of(name)


@pytest.mark.parametrize("name", GANGS)
def test_a_run_by_name_is_the_run_of_the_engine_and_passes_the_validator(name):
    toy = toy_workload()
    run = simulate(toy, name, **ENGINE)
    same = run_rounds(toy, policy_of(name, 90.0, 5.0), **ENGINE)
    assert (run.end_s == same.end_s).all() and run.history.equals(same.history)
    check_simulation(toy, run)


def test_no_two_schedulers_of_gangs_do_the_same():
    busy = draw_workload(default_throughputs(), 0, num_jobs=120, scale=0.03)
    ends_s = {tuple(simulate(busy, name).end_s): name for name in GANGS}
    assert list(ends_s.values()) == GANGS


@pytest.mark.parametrize("name", FORKED)
def test_copies_by_name_are_run_as_copies_and_say_whom_they_cannot_run(name):
    nodes = node_workload("aws", "M-4")
    run = simulate(nodes, name, **ENGINE)
    assert (run.end_s == run_copies(nodes, policy_of(name, 90.0, 5.0)).end_s).all()
    assert (run.intervals["length_s"] == 90).all()
    check_simulation(nodes, run)
    with pytest.raises(InputError, match=f"policy '{name}': copies are for nodes with one GPU"):
        simulate(toy_workload(), name)


def test_settings_are_what_the_constructor_takes_and_can_be_written():
    assert options_of(Tiresias(threshold_gpu_s=7.0)) == {"threshold_gpu_s": 7.0, "by_number": False}
    assert options_of(YarnCs(mixed=False)) == {"mixed": False}
    assert options_of(Gavel("sum", may_idle=True)) == {"reset_s": 1920.0, "may_idle": True}
    assert options_of(HadarE("longest"))["order"] == "longest" and options_of(Hadar(sticky=True))["sticky"]
    assert options_of(Planned(by_area=True)) == {
        "round_s": 360.0, "restart_s": 10.0, "by_area": True, "plan_rounds": 20, "margin_rounds": 3}


def test_one_record_adds_a_policy(monkeypatch):
    mine = PolicyRecord("yarn-cs-one-type", "waits for one type", "ours", lambda *_: YarnCs(mixed=False))
    monkeypatch.setattr(policies, "POLICIES", PolicyTable(*POLICIES.values(), mine))
    assert report.report_of(toy_workload(), "yarn-cs-one-type").summary["options"] == {"mixed": False}


@pytest.mark.parametrize("policy", ["hadar", "hadare"])
@pytest.mark.parametrize(("round_s", "restart_s"), [
    (0.0, 0.0), (-1.0, 0.0), (np.inf, 10.0), (np.nan, 10.0), (360.0, 360.0), (360.0, -1.0), (360.0, np.nan)])
def test_lengths_are_checked_first(policy, round_s, restart_s):
    with pytest.raises(InputError, match="give a round above 0"):
        simulate(figure_one(), policy, round_s=round_s, restart_s=restart_s)


def test_an_unknown_policy_is_refused():
    with pytest.raises(InputError, match="there is no policy 'gavel'.*gavel-maxmin.*yarn-cs"):
        simulate(figure_one(), "gavel")
