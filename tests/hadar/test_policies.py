"""The table of policies: one record makes, runs and bounds a scheduler, and whoever uses it asks for no name."""
import numpy as np
import pytest

from sched_lab.hadar import policies, report
from sched_lab.hadar.baselines import Gavel, Tiresias, YarnCs
from sched_lab.hadar.bounds import bound
from sched_lab.hadar.model import check_simulation, figure_one, toy_workload
from sched_lab.hadar.planned import Planned, mean_jct_bound_s
from sched_lab.hadar.policies import POLICIES, Copies, Gangs, options_of, policy_of, simulate
from sched_lab.hadar.primal_dual import Hadar
from sched_lab.hadar.simulation import HadarE, node_workload, run_copies, run_rounds
from sched_lab.lab.frames import InputError
from sched_lab.lab.records import PolicyRecord, PolicyTable

GANGS = [name for name, record in POLICIES.items() if isinstance(record.scalar_form, Gangs)]
COPIES = [name for name, record in POLICIES.items() if isinstance(record.scalar_form, Copies)]


def test_every_record_runs_gangs_or_copies():
    assert [*GANGS, *COPIES] and {*GANGS, *COPIES} == {*POLICIES}
    assert COPIES == ["hadare", "hadare-longest"]


@pytest.mark.parametrize("name", GANGS)
def test_a_run_by_name_is_the_run_of_the_engine_and_passes_the_validator(name):
    toy = toy_workload()
    run = simulate(toy, name, round_s=90.0, restart_s=5.0)
    same = run_rounds(toy, policy_of(name, 90.0, 5.0), round_s=90.0, restart_s=5.0)
    assert (run.end_s == same.end_s).all() and run.history.equals(same.history)
    check_simulation(toy, run)
    form = POLICIES[name].scalar_form
    assert form.bound_s(toy) == bound(toy) <= run.ttd_s
    assert form.mean_jct_bound_s(toy) == mean_jct_bound_s(toy.cluster, toy.jobs) <= run.jct_s.mean()


@pytest.mark.parametrize("name", COPIES)
def test_copies_by_name_are_run_and_bounded_as_copies(name):
    nodes = node_workload("aws", "M-4")
    run = simulate(nodes, name, round_s=90.0, restart_s=5.0)
    assert (run.end_s == run_copies(nodes, policy_of(name, 90.0, 5.0)).end_s).all()
    check_simulation(nodes, run)
    form = POLICIES[name].scalar_form
    assert form.bound_s(nodes) == bound(nodes, is_forked=True) <= run.ttd_s
    assert form.mean_jct_bound_s(nodes) is None


@pytest.mark.parametrize("name", COPIES)
def test_who_cannot_run_a_problem_says_so_with_its_name(name):
    with pytest.raises(InputError, match=f"policy '{name}': copies are for nodes with one GPU"):
        simulate(toy_workload(), name)


@pytest.mark.parametrize("name", POLICIES)
def test_nobody_runs_in_lockstep_and_asking_says_so(name):
    assert POLICIES[name].array_form is None
    with pytest.raises(InputError, match=f"policy '{name}' has no array form"):
        POLICIES.array_form(name)


@pytest.mark.parametrize("name", POLICIES)
def test_a_scheduler_that_plans_with_rounds_is_told_their_length(name):
    told = options_of(policy_of(name, 90.0, 5.0))
    lengths = {told.get("round_s", told.get("slot_s")), told.get("restart_s", told.get("overhead_s"))}
    assert lengths == ({90.0, 5.0} if POLICIES[name].options else {None})


def test_settings_are_what_the_constructor_takes_and_can_be_written():
    assert options_of(Tiresias(threshold_gpu_s=7.0)) == {"threshold_gpu_s": 7.0, "by_number": False}
    assert options_of(YarnCs(mixed=False)) == {"mixed": False}
    assert options_of(Gavel("sum", may_idle=True)) == {"reset_s": 1920.0, "may_idle": True}
    assert options_of(HadarE("longest"))["order"] == "longest" and options_of(Hadar(sticky=True))["sticky"]
    assert options_of(Planned(by_area=True)) == {
        "round_s": 360.0, "restart_s": 10.0, "by_area": True, "plan_rounds": 20, "margin_rounds": 3}


def test_one_record_adds_a_policy(monkeypatch):
    mine = PolicyRecord("yarn-cs-one-type", "waits for one type", "ours", Gangs(lambda *_: YarnCs(mixed=False)))
    monkeypatch.setattr(policies, "POLICIES", PolicyTable(*POLICIES.values(), mine))
    assert report.report_of(toy_workload(), "yarn-cs-one-type").summary["options"] == {"mixed": False}


@pytest.mark.parametrize(("round_s", "restart_s"), [(0.0, 0.0), (np.nan, 10.0), (360.0, 360.0), (360.0, -1.0)])
def test_lengths_and_names_are_checked_first(round_s, restart_s):
    with pytest.raises(InputError, match="give a round above 0"):
        simulate(figure_one(), "hadar", round_s=round_s, restart_s=restart_s)
    with pytest.raises(InputError, match="there is no policy 'gavel'"):
        simulate(figure_one(), "gavel")
