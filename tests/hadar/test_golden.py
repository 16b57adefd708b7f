"""Recorded results: runs of Gavel's own simulator, the paper's Fig. 1, Theorem 2 and 3, and our own prototype."""
import json
import math

import numpy as np
import pytest

from sched_lab.hadar.baselines import (
    Gavel,
    Tiresias,
    YarnCs,
    fair_shares,
    fastest_shares,
    shortest_shares,
)
from sched_lab.hadar.fluid import makespan_bound_s, shortest_fluid
from sched_lab.hadar.fork import GPUS, PMI, copy_ids, divide_steps, estimated_rate, pmi
from sched_lab.hadar.model import (
    SECONDS_PER_HOUR,
    Allocation,
    allocation_of,
    figure_one,
    gpus_in_use,
    type_gpus,
)
from sched_lab.hadar.primal_dual import Hadar, price
from sched_lab.hadar.simulation import HadarE, rounds_frame, run_copies, run_rounds
from sched_lab.hadar.workload import draw_workload
from sched_lab.traces import find_data, find_reference
from studies.gavel import RoundShares, read_gavel_throughputs
from studies.hadar_theorems import SlottedWorkload, check_theorem, discrete_alpha, refused_job
from tests.hadar.cases import TOY, TYPES, golden_workload, jobs_of, named, nodes_of, workload_of

NAMES = ("golden", "lp_bounds", "theorem2_golden", "theorem2_counter")
CASES, BOUNDS, THEOREM_2, COUNTERS = (
    json.loads(file.read_text()) if (file := find_reference(f"hadar/{name}.json")) else [] for name in NAMES)
RUNS = [pytest.param(case, run, id=f"{case['name']}-{run['policy']}-{run['cvxpy_solver']}")
        for case in (CASES["cases"] if CASES else []) for run in case["results"]]
SPEEDS = find_data("gavel/throughputs.csv")
pytestmark = pytest.mark.skipif(not (CASES and BOUNDS and TOY and SPEEDS), reason="reference/hadar or the data "
                                "gavel/throughputs.csv is absent")


# --- Gavel's own simulator -------------------------------------------------------------------------------------------

class Replay:
    """The rounds that Gavel's simulator recorded: type by type; nodes are filled in order."""

    def __init__(self, rounds):
        self.rounds = iter(rounds)

    def allocate(self, state):
        start_s, rows = next(self.rounds)
        assert state.now_s == start_s
        free = state.cluster.node_gpus.copy()
        places = {}
        for job, kind, wanted in rows:
            for node in np.flatnonzero(state.cluster.node_type == TYPES.index(kind)):
                taken = min(wanted, free[node])
                free[node] -= taken
                wanted -= taken
                places.setdefault(job, {})[int(node)] = int(taken)
        return allocation_of(places)


def gavel_of(recorded):
    """Gavel with the shares that were recorded, which must be asked for in the same moments."""
    calls = iter(recorded["allocation_calls"])

    def shares(state, rate):
        call = next(calls)
        assert state.now_s == call["t"]
        assert state.active.tolist() == call["job_ids"]
        assert state.remaining[state.active].tolist() == call["remaining"]
        return np.array(call["alloc"])

    return Gavel(shares, may_idle=recorded["policy"] == "fifo")


@pytest.mark.parametrize(("case", "recorded"), RUNS)
def test_rounds_of_gavels_simulator_are_replayed_and_with_its_shares_chosen_again(case, recorded):
    schedulers = [Replay(recorded["rounds"])]
    if recorded["policy"] != "max_min_fairness":  # there Gavel shuffles the GPU types with a generator of its own
        schedulers.append(gavel_of(recorded))
    rounds = [(start_s, sorted(map(tuple, rows))) for start_s, rows in recorded["rounds"] if rows]
    for scheduler in schedulers:
        run = run_rounds(golden_workload(case), scheduler, whole_steps=True)
        assert run.jct_s == pytest.approx(recorded["jct_s"], abs=1e-6)
        frame = rounds_frame(run).groupby(["round", "job", "type"], as_index=False)["gpus"].sum()
        ours = [(start_s, sorted(zip(now["job"].astype(int), now["type"], now["gpus"], strict=True)))
                for start_s, (_, now) in zip(run.intervals["start_s"], frame.groupby("round"), strict=True)]
        assert ours == rounds


@pytest.mark.parametrize(("case", "recorded"), [pair for pair in RUNS if pair.values[1]["policy"] in (
    "max_min_fairness_perf", "max_sum_throughput_perf", "min_total_duration_perf")])
def test_no_recorded_shares_are_better_than_our_optimum(case, recorded):
    gpus = type_gpus(golden_workload(case).cluster, 3)
    for call in recorded["allocation_calls"]:
        share, rate, workers = (np.array(call[name]) for name in ("alloc", "throughputs", "scale"))
        speed = (share * rate).sum(axis=1)
        if recorded["policy"] == "max_min_fairness_perf":
            best, _ = fair_shares(rate, workers, gpus, np.ones(len(workers)))
            assert (speed * workers / (rate @ (gpus / gpus.sum()))).min() == pytest.approx(best, rel=1e-6)
        elif recorded["policy"] == "max_sum_throughput_perf":
            assert speed.sum() == pytest.approx(fastest_shares(rate, workers, gpus)[0], rel=1e-6)
        else:  # Gavel's bisection stops early, up to 36% above the optimum in these runs
            left = np.array(call["remaining"], float)
            best, _ = shortest_shares(rate, workers, gpus, left)
            assert best * (1 - 1e-6) <= (left / speed).max() <= 1.4 * best


# --- the paper, and our own prototype --------------------------------------------------------------------------------

def test_figure_one_is_the_papers_round_by_round():
    work = figure_one()
    assert work.jobs.rate.tolist() == work.jobs.spread_rate.tolist() == [[40, 20, 30], [5, 15, 5], [10, 2, 20]]
    assert (work.jobs.steps.tolist(), work.jobs.workers.tolist()) == ([80, 30, 50], [3, 2, 2])
    share = np.array([[0.6, 0.4, 0], [0.2, 0.6, 0.2], [0.2, 0, 0.8]])
    run = run_rounds(work, RoundShares(share), round_s=1.0, restart_s=0.0)
    left = work.jobs.steps.copy()
    expected = TOY["fig1_gavel"]["rounds"]
    assert len(run.intervals) == len(expected) == 6
    for row, (_, now) in zip(expected, run.history.groupby("round"), strict=True):
        kinds = work.cluster.node_type[now["node"]]
        left[now["job"]] = np.maximum(0, left[now["job"]] - work.jobs.rate[now["job"], kinds])
        assert {work.job_name[job]: TYPES[kind] for job, kind in zip(now["job"], kinds, strict=True)} == row["alloc"]
        places = Allocation(*(now[name].to_numpy() for name in ("job", "node", "gpus")))
        assert (left.tolist(), gpus_in_use(work.cluster, places).sum()) == (row["left"], row["busy"])


@pytest.mark.parametrize(("name", "scheduler"), [
    ("Hadar-effnorm", Hadar()), ("Hadar-eff", Hadar("eff")), ("Hadar-inv", Hadar("inv")),
    ("Hadar-sticky", Hadar(sticky=True)), ("YARN-CS", YarnCs()), ("Tiresias", Tiresias()),
    ("Gavel-maxmin", Gavel("maxmin")), ("Gavel-makespan", Gavel("makespan"))])
def test_six_jobs_end_when_the_prototype_says(name, scheduler):
    jobs = next(case for case in CASES["cases"] if case["name"] == "tiny6")["jobs"]
    table = read_gavel_throughputs(SPEEDS)
    rows = [table.row[job["job_type"], job["scale_factor"]] for job in jobs]
    steps, workers, arrival_s = (np.array([job[key] for job in jobs]) for key in
                                 ("total_steps", "scale_factor", "arrival_s"))
    six = jobs_of(table.rate[rows], steps, workers, arrival_s=arrival_s)._replace(spread_rate=table.spread_rate[rows])
    run = run_rounds(named(nodes_of([2, 2, 2], range(3)), six), scheduler)
    expected = TOY["tiny6"][name]
    if name.startswith("Gavel"):  # the program has several optima, and which one is found decides who goes first
        assert run.ttd_s == pytest.approx(expected["TTD_s"], rel=0.1)
        return
    assert run.end_s == pytest.approx(expected["finish_s"], abs=2e-3)  # recorded with few digits
    assert len(run.intervals) == expected["rounds"]
    assert run.intervals["restarts"].sum() == expected["restarts"]
    first = run.history[run.history["round"] == 0]
    places = {str(job): own[["node", "gpus"]].to_numpy().tolist() for job, own in first.groupby("job")}
    assert places == {job: place for job, place in expected["first_round"].items() if place}


def test_prices_are_the_recorded_ones():
    for row in TOY["price"]:
        assert price(row["gamma"], row["c"], row["umin"], row["umax"]) == pytest.approx(row["k"], rel=1e-12)


@pytest.mark.parametrize("row", BOUNDS, ids=lambda row: f"{row['ref']}-{row['sf']}-{row['seed']}")
def test_the_papers_workload_has_the_longest_job_and_the_bounds_of_the_reference(row):
    work = draw_workload(read_gavel_throughputs(SPEEDS), row["seed"], reference=row["ref"], gangs=row["sf"])
    jobs = work.jobs
    packed_s, _ = shortest_fluid(jobs.rate, jobs.workers, type_gpus(work.cluster, 3), jobs.steps)
    for seconds, name, rel in (((jobs.steps / jobs.rate.max(axis=1)).max(), "longest_single_job_h", 1e-9),
                               (makespan_bound_s(work.cluster, jobs), "lp_best_of_both_h", 1e-7),
                               (packed_s, "lp_consolidated_h", 1e-7)):
        assert seconds / SECONDS_PER_HOUR == pytest.approx(row[name], rel=rel)


# --- Theorem 2 -------------------------------------------------------------------------------------------------------

FIELDS = {"OPT": "optimum", "LP": "linear_optimum", "P": "primal", "D": "dual", "D0": "dual_start", "alpha": "alpha",
          "alpha_discrete": "discrete_alpha", "lemma2": "lemma2", "lemma2_discrete": "lemma2_discrete",
          "D0_ok": "start_is_low", "weak": "weak_duality", "Dfeas": "feasible_dual", "bound_ok": "bound_holds",
          "admitted": "admitted", "ratio": "ratio"}


def slotted_of(case):
    """Make the instance of a recorded case."""
    workers, rate, steps, arrival = (np.array([job[key] for job in case["jobs"]]) for key in ("W", "X", "EN", "a"))
    return SlottedWorkload(case["T"], np.array(case["cap"]), workers, rate.astype(float), steps.astype(float), arrival)


@pytest.mark.parametrize("case", [*(THEOREM_2["cases"] if THEOREM_2 else []), *COUNTERS], ids=lambda case: "")
def test_the_theorem_on_recorded_instances_and_counterexamples(case):
    if "jobs" in case:
        verdict = check_theorem(slotted_of(case))
    else:
        verdict = check_theorem(refused_job(case["T"]), "printed" if case["eta"] == "paper" else "repaired")
    for key, name in FIELDS.items():
        expected = math.inf if case[key] is None else case[key]  # a ratio to nothing is recorded as null
        assert getattr(verdict, name) == pytest.approx(expected, abs=1e-9), key


def test_the_recorded_alpha():
    case = TOY["alpha"]
    log_ratio = math.log(case["umax"] / case["umin"])
    assert log_ratio == pytest.approx(case["alpha"])
    assert discrete_alpha(log_ratio, 1 / 4) == pytest.approx(case["alpha_discrete_1of4"])
    assert discrete_alpha(log_ratio, 1) == pytest.approx(case["alpha_discrete_4of4"])


# --- HadarE ----------------------------------------------------------------------------------------------------------

def test_copies_and_estimates_are_those_of_the_reference():
    case = TOY["job_ids"]
    assert copy_ids(case["parent"], case["n"], case["max_job_count"]) == case["ids"]
    for case in TOY["step_division"]:
        assert divide_steps(case["remaining"], case["throughputs"]).tolist() == case["steps"]
    for name, case in TOY["pmi"].items():
        assert GPUS[name] == (case["fp32"], case["tensor_fp16"], case["vram_gb"], case["pcie"])
        for formula in PMI:
            assert pmi(GPUS[name], formula) == pytest.approx(case[formula], abs=5.01e-5)  # stored with four decimals
    for case in TOY["eq10_examples"]:
        rate = estimated_rate(GPUS[case["gpu"]], batch=case["batch"], model_weight=case["model_weight"],
                              dataset_size=case["dataset"])
        assert rate == pytest.approx(case["throughput"], abs=1e-5)


def test_utilisation_in_copies_is_that_of_the_reference():
    for case in TOY["theorem3_single"]:
        for copies in range(1, case["n"] + 1):
            rates = np.arange(case["n"]) < copies  # on the other nodes it cannot run
            run = run_copies(workload_of([360 * case["R1"]], [rates]), HadarE(overhead_s=0.0))
            assert run.cru == pytest.approx(case["cru"][copies - 1], abs=5.01e-5)
    case = TOY["theorem3_counter"]  # two jobs get a node each, and the better end
    steps = [round(360 * work) for work in case["jobs"].values()]
    run = run_copies(workload_of(steps, np.ones((2, 2))), HadarE(overhead_s=0.0))
    assert len(run.intervals) == case["hadare_one_copy_each"]["rounds"]
    assert run.cru == pytest.approx(case["hadare_one_copy_each"]["cru"])
    assert run.cru > case["hadare_A_then_B"]["cru"]
