"""The exact program of ANDREAS: brute force, stored optima, and honest bounds."""
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.optimize

from sched_lab.andreas import exact, policies
from sched_lab.andreas.exact import (
    Model,
    Objective,
    objective_eur,
    solve_exact,
)
from sched_lab.andreas.greedy import DEFAULTS
from sched_lab.andreas.instances import generate, toy_instance
from sched_lab.andreas.model import Assignment, Fleet, Jobs, check_assignment
from sched_lab.andreas.policies import MOST_NODES, cheapest_alone, decide_exactly
from sched_lab.andreas.proxy import paper_objective
from sched_lab.andreas.report import report_of
from sched_lab.andreas.rollout import rollout
from sched_lab.andreas.rules import Running, nothing_runs, open_nodes
from sched_lab.andreas.simulation import simulate
from sched_lab.lab.frames import InputError
from tests.andreas.cases import CASES as STORED_CASES
from tests.andreas.cases import every_assignment, golden, instance_of

VARIANTS = tuple(product(("first", "cheapest", "node", "share"), (False, True)))
CASES = {case["name"]: case for case in STORED_CASES}
STORED = {"milp_corrected_first_ending": ("first", False), "milp_printed_alpha_cover4n": ("cheapest", True),
          "milp_first_ending_cover4n": ("first", True)}
each_case = pytest.mark.parametrize("name", CASES)


def random_case(seed: int, num_jobs: int, num_nodes: int) -> tuple[Fleet, Jobs, float, float, float]:
    """Two GPU types, four configurations, jobs with holes in their profiles; also the time, H and rho.

    Times are multiples of 100 s, so that jobs often end together.
    """
    rng = np.random.default_rng([seed, num_jobs, num_nodes])
    price = np.hstack([np.zeros((2, 1)), np.cumsum(rng.uniform(0.05, 0.4, (2, 3)), axis=1)])
    fleet = Fleet(rng.integers(0, 2, num_nodes), rng.integers(1, 4, num_nodes), np.array([0, 0, 1, 1]),
                  np.array([1, 2, 1, 2]), price)
    times_s = rng.integers(2, 30, (num_jobs, 4)) * 100.0
    times_s[rng.random((num_jobs, 4)) < 0.3] = np.inf
    jobs = Jobs(np.zeros(num_jobs), rng.integers(0, 50, num_jobs) * 100.0, rng.uniform(0, 1e-3, num_jobs), times_s)
    now_s = float(rng.integers(0, 4) * 500)
    period_s = float(rng.choice([0, 300, 1000]))
    return fleet, jobs, now_s, period_s, float(rng.choice([1, 100]))


# --- an oracle of its own: every choice of a configuration and node for every job, and sums written out --------------

def charges_eur(fleet: Fleet, runs: list[tuple[float, int]], gpu_type: int) -> dict[str, float]:
    """Four charges for a node with these runs (seconds, GPUs)."""
    price = fleet.cost_eur_per_h[gpu_type] / 3600
    used = sum(gpus for _, gpus in runs)
    first_s = min(time_s for time_s, _ in runs)
    return {"cheapest": min(time_s * price[gpus] for time_s, gpus in runs),
            "first": min(time_s * price[gpus] for time_s, gpus in runs if time_s == first_s),
            "node": first_s * price[used],
            "share": min(time_s * price[used] * gpus / used for time_s, gpus in runs if time_s == first_s)}


def values_eur(fleet: Fleet, jobs: Jobs, now_s: float, assignment: Assignment, period_s: float, rho: float
               ) -> dict[Any, float]:
    """Objective of an assignment in all variants."""
    lateness_eur = 0.0
    runs: dict[int, list[tuple[float, int]]] = {}
    for j, (n, c) in enumerate(zip(*assignment, strict=True)):
        weight = float(jobs.weight_eur_per_s[j])
        due_s = float(jobs.due_s[j])
        if n < 0:
            slowest_s = max((t for t in jobs.times_s[j] if t < np.inf), default=0.0)
            lateness_eur += rho * weight * max(now_s + period_s + slowest_s - due_s, 0)
            continue
        time_s = float(jobs.times_s[j, c])
        lateness_eur += weight * max(now_s + time_s - due_s, 0)
        runs.setdefault(int(n), []).append((time_s, int(fleet.configuration_gpus[c])))
    charged = [charges_eur(fleet, own, int(fleet.node_type[n])) for n, own in runs.items()]
    is_covered = len(runs) >= min(len(fleet.node_type), len(jobs.due_s))
    values: dict[Any, float] = {(charge, cover): lateness_eur + sum(node[charge] for node in charged)
                                if is_covered or not cover else np.inf for charge, cover in VARIANTS}
    return values


def least_eur(fleet: Fleet, jobs: Jobs, now_s: float, period_s: float, rho: float) -> dict[Any, float]:
    """Least value of each variant over all assignments."""
    rows = [values_eur(fleet, jobs, now_s, one, period_s, rho) for one in every_assignment(fleet, jobs)]
    return {variant: min(row[variant] for row in rows) for variant in rows[0]}


def check_solver(fleet: Fleet, jobs: Jobs, now_s: float, period_s: float, rho: float, least: dict[Any, float]) -> int:
    """Compare the solver's optimum with the least value in every variant; return the number of comparisons."""
    for charge, cover in VARIANTS:
        found = solve_exact(fleet, jobs, now_s, Objective(period_s=period_s, rho=rho, charge=charge, cover=cover))
        check_optimum(found, fleet, jobs, least[charge, cover])
        if found.assignment is not None:
            mine = values_eur(fleet, jobs, now_s, found.assignment, period_s, rho)[charge, cover]
            assert mine == pytest.approx(found.value, rel=1e-9, abs=1e-12)
    return len(VARIANTS)


def check_optimum(found: exact.Exact, fleet: Fleet, jobs: Jobs, least: float) -> None:
    assert found.is_proved
    if least == np.inf:
        assert found.assignment is None and found.value == found.bound == np.inf
        return
    check_assignment(fleet, jobs.times_s, found.assignment)
    assert found.value == pytest.approx(least, rel=1e-6, abs=1e-8)
    assert 0 <= found.bound <= found.value and found.gap <= 1e-6 * max(1.0, found.value) / max(found.value, 1e-12)


# --- equal to brute force --------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("num_jobs", "num_nodes", "seeds"), [(2, 3, 4), (3, 2, 5), (4, 2, 2), (6, 1, 1)])
def test_the_solver_finds_what_brute_force_finds_in_all_variants(num_jobs, num_nodes, seeds):
    compared = 0
    for seed in range(seeds):
        fleet, jobs, now_s, period_s, rho = random_case(seed, num_jobs, num_nodes)
        compared += check_solver(fleet, jobs, now_s, period_s, rho, least_eur(fleet, jobs, now_s, period_s, rho))
    assert compared == 8 * seeds


@pytest.mark.parametrize("seed", range(4))
def test_objectives_are_the_sums_written_out(seed):
    fleet, jobs, now_s, period_s, rho = random_case(100 + seed, 3, 2)
    for one in every_assignment(fleet, jobs):
        expected = values_eur(fleet, jobs, now_s, one, period_s, rho)
        for charge, cover in VARIANTS:
            value = objective_eur(fleet, jobs, now_s, one,
                                  Objective(period_s=period_s, rho=rho, charge=charge, cover=cover))
            assert value == pytest.approx(expected[charge, cover], rel=1e-9, abs=1e-12)
        paper = paper_objective(fleet, jobs, now_s, *one, rho, period_s)
        assert paper == pytest.approx(expected["first", False], rel=1e-9, abs=1e-12)


# --- the stored optima -----------------------------------------------------------------------------------------------

@golden
@each_case
def test_stored_optima_of_eq_1_are_found(name):
    case = CASES[name]
    instance = instance_of(case)
    compared = 0
    for key, (charge, cover) in STORED.items():
        if key not in case["exact"]:
            continue
        found = solve_exact(instance.fleet, instance.jobs, instance.now_s, Objective(charge=charge, cover=cover))
        stored = case["exact"][key]["value"]
        assert found.is_proved
        assert found.value == pytest.approx(np.inf if stored is None else stored, rel=1e-6, abs=1e-8)
        compared += 1
    assert compared


# --- value, bound, gap: never "optimal" without a proof --------------------------------------------------------------

@pytest.fixture(scope="module")
def large() -> tuple[Fleet, Jobs, float]:
    """Thirty jobs of a generated instance of 12 nodes, when the last of them is submitted."""
    drawn = generate(1000, 12, 1.7)
    now_s = float(np.sort(drawn.jobs.submission_s)[29])
    return drawn.fleet, Jobs(*(column[drawn.jobs.submission_s <= now_s] for column in drawn.jobs)), now_s


@pytest.mark.parametrize("time_limit_s", [0.0, 1e-6])
def test_no_time_no_proof(large, time_limit_s):
    fleet, jobs, now_s = large
    found = solve_exact(fleet, jobs, now_s, time_limit_s=time_limit_s)
    assert not found.is_proved
    assert 0 <= found.bound <= found.value and found.gap > 0
    if found.assignment is None:
        assert found.value == np.inf and found.gap == np.inf
    else:
        check_assignment(fleet, jobs.times_s, found.assignment)
        assert found.gap == (found.value - found.bound) / found.value <= 1


def test_a_solver_that_stops_at_a_gap_proves_only_that_gap(large):
    fleet, jobs, now_s = large
    best = solve_exact(fleet, jobs, now_s)
    assert best.is_proved
    found = solve_exact(fleet, jobs, now_s, gap=0.9)
    assert found.bound <= best.value * (1 + 1e-6) and found.value >= best.bound and found.gap <= 0.9
    assert found.is_proved == (found.value - found.bound <= 1e-6 * max(1.0, found.value))


class Told:
    """HiGHS's answer, told by the test."""

    def __init__(self, x, status, bound, fun=0.0):
        self.x, self.status, self.mip_dual_bound, self.fun = x, status, bound, fun


@pytest.mark.parametrize(("status", "bound_eur", "is_proved"), [(0, 0.06, True), (0, 0.05, False), (0, 0.07, False),
                                                                (1, 0.06, False), (1, None, False), (4, 0.06, False)])
def test_proved_needs_a_finished_solver_and_a_bound_that_meets_the_value(monkeypatch, status, bound_eur, is_proved):
    # R runs on its only place: 600 s at 1e-4 EUR/s, 0.06 EUR. Variables: x, w, late, later, v. In 1/1000 EUR.
    told = Told(np.array([1.0, 1, 0, 0, 1]), status, None if bound_eur is None else bound_eur * 1000, 60.0)
    monkeypatch.setattr(scipy.optimize, "milp", lambda *_, **__: told)
    found = solve_exact(box(), queue_of(5000, [[600.0, np.inf]]), 0.0)
    assert (found.value, found.is_proved) == (pytest.approx(0.06), is_proved)
    bound = min(bound_eur or 0.0, 0.06)
    assert (found.bound, found.gap) == (pytest.approx(bound), pytest.approx((0.06 - bound) / 0.06))


@pytest.mark.parametrize(("status", "bound_eur", "is_proved", "expected"),
                         [(2, None, True, np.inf), (1, None, False, 0.0), (1, 0.02, False, 0.02),
                          (4, None, False, 0.0)])
def test_without_an_assignment_only_infeasible_is_a_proof(monkeypatch, status, bound_eur, is_proved, expected):
    told = Told(None, status, None if bound_eur is None else bound_eur * 1000)
    monkeypatch.setattr(scipy.optimize, "milp", lambda *_, **__: told)
    found = solve_exact(box(), queue_of(5000, [[600.0, np.inf]]), 0.0)
    assert found.assignment is None and found.value == found.gap == np.inf
    assert (found.is_proved, found.bound) == (is_proved, expected)


def test_a_value_that_the_solver_did_not_mean_is_not_proved(monkeypatch):
    # The solver says 0.01 EUR and a bound of 0.01; the assignment that it returns costs 0.06: no proof.
    told = Told(np.array([1.0, 1, 0, 0, 1]), 0, 10.0, 10.0)
    monkeypatch.setattr(scipy.optimize, "milp", lambda *_, **__: told)
    found = solve_exact(box(), queue_of(5000, [[600.0, np.inf]]), 0.0)
    assert (found.value, found.bound, found.is_proved) == (pytest.approx(0.06), pytest.approx(0.01), False)


def test_coefficients_of_a_variable_named_twice_in_a_row_add_up():
    program = Model()
    one = program.add([-1.0], is_binary=False, upper=10)
    program.row((one, 1.0), (one, 2.0), upper=6)  # 3 x <= 6
    assert program.rows[0][0] == {0: 3.0} and program.solve(10, 0).value == pytest.approx(-2)


# --- one job or two on one node with four GPUs; where the printed model goes wrong is in chapter 34

def box() -> Fleet:
    """1, 1.5, 2 and 2.5 ten-thousandths of a EUR per second with one to four GPUs in use; jobs take one or two."""
    cost_eur_per_h = np.array([[0, 0.36, 0.54, 0.72, 0.90]])
    return Fleet(np.array([0]), np.array([4]), np.array([0, 0]), np.array([1, 2]), cost_eur_per_h)


def queue_of(due_s: float, times_s: list[list[float]]) -> Jobs:
    """Jobs of 0.001 EUR/s."""
    num_jobs = len(times_s)
    return Jobs(np.zeros(num_jobs), np.full(num_jobs, float(due_s)), np.full(num_jobs, 0.001), np.array(times_s))


# --- the toy instance by hand ----------------------------------------------------------------------------------------

@pytest.fixture()
def toy() -> tuple[Fleet, Jobs]:
    """Jobs A to D at time 0."""
    instance = toy_instance()
    return instance.fleet, Jobs(*(column[:4] for column in instance.jobs))


# --- bad input and edges ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["rho", "period_s", "time_limit_s", "gap", "now_s"])
@pytest.mark.parametrize("number", [-1.0, np.nan, np.inf])
def test_numbers_that_make_no_program_are_named(toy, name, number):
    if (name, number) == ("time_limit_s", np.inf):
        return
    options = {name: number} if name in ("time_limit_s", "gap") else {}
    with pytest.raises(InputError, match=f"{name} is {number}; give a finite number"):
        solve_exact(*toy, number if name == "now_s" else 0.0,
                    Objective(**{name: number} if name in ("rho", "period_s") else {}), **options)


@pytest.mark.parametrize(("column", "value", "words"), [
    ("due_s", np.nan, "job 1 lacks a finite due date"), ("due_s", np.inf, "job 1 lacks a finite due date"),
    ("weight_eur_per_s", -1.0, "job 1 lacks .* or weight"), ("weight_eur_per_s", np.nan, "job 1 lacks .* or weight"),
    ("times_s", 0.0, "job 1 has a run time"), ("times_s", -5.0, "job 1 has a run time"),
    ("times_s", np.nan, "job 1 has a run time")])
def test_jobs_that_make_no_program_are_named(toy, column, value, words):
    fleet, jobs = toy
    changed = getattr(jobs, column).copy()
    changed[(1, 0) if column == "times_s" else 1] = value
    with pytest.raises(InputError, match=words):
        solve_exact(fleet, jobs._replace(**{column: changed}), 0.0)


@pytest.mark.parametrize("price", [np.nan, np.inf, -0.1, None])
def test_a_node_without_a_price_is_named(toy, price):
    fleet, jobs = toy  # n1 is of type 0 and has two GPUs
    cost = fleet.cost_eur_per_h[:, :2] if price is None else fleet.cost_eur_per_h.copy()
    if price is not None:
        cost[0, 2] = price
    with pytest.raises(InputError, match="node 0 lacks a price"):
        solve_exact(fleet._replace(cost_eur_per_h=cost), jobs, 0.0)


def test_an_unknown_charge_is_named(toy):
    words = "unknown charge 'last'; give one of first, cheapest, node, share"
    with pytest.raises(InputError, match=words):
        solve_exact(*toy, 0.0, Objective(charge="last"))
    with pytest.raises(InputError, match=words):
        objective_eur(*toy, 0.0, Assignment(np.full(4, -1), np.full(4, -1)), Objective(charge="last"))


def test_no_jobs_cost_nothing(toy):
    fleet, jobs = toy
    none = Jobs(*(column[:0] for column in jobs))
    found = solve_exact(fleet, none, 0.0, Objective(cover=True))
    assert found.is_proved and found.value == found.bound == found.gap == 0 and len(found.assignment.node) == 0


def test_jobs_that_fit_nowhere_wait():
    jobs = queue_of(0, [[np.inf, np.inf], [600.0, np.inf]])
    found = solve_exact(box(), jobs, 0.0)
    assert found.is_proved and found.assignment.node.tolist() == [-1, 0]
    # the first has no slowest time: 100 * 0.001 * 300 = 30 EUR for the period; the second 0.60 late + 0.06
    assert found.value == pytest.approx(30.66)


# --- at every event of a day -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("seed", range(3))
def test_a_decision_of_a_day_is_what_brute_force_finds(seed):
    fleet, jobs, now_s, _, _ = random_case(seed, 3, 2)
    found = decide_exactly(fleet, jobs, now_s, DEFAULTS, nothing_runs(fleet, 3))
    check_assignment(fleet, jobs.times_s, found)
    best = min(every_assignment(fleet, jobs), key=lambda one: objective_eur(fleet, jobs, now_s, one))
    least = objective_eur(fleet, jobs, now_s, best)
    assert found.proof == (0.0, True, False)
    if (best.node >= 0).any():
        assert objective_eur(fleet, jobs, now_s, found) == pytest.approx(least, rel=1e-6, abs=1e-8)


def test_if_all_may_wait_the_cheapest_run_goes_alone(toy):
    fleet, jobs = toy
    safe = jobs._replace(due_s=np.full(4, 1e6))
    assert (solve_exact(fleet, safe, 0.0).assignment.node == -1).all()
    found = decide_exactly(fleet, safe, 0.0, DEFAULTS, nothing_runs(fleet, 4))
    ran = np.flatnonzero(found.node >= 0)
    assert len(ran) == 1 and found.proof.gap == 0
    least = min(objective_eur(fleet, safe, 0.0, one) for one in every_assignment(fleet, safe) if (one.node >= 0).any())
    assert objective_eur(fleet, safe, 0.0, found) == pytest.approx(least)
    nowhere = queue_of(0, [[np.inf, np.inf]])
    assert cheapest_alone(box(), nowhere).node.tolist() == [-1]


def told_nothing(*_, **__) -> Told:
    """HiGHS has found nothing when the clock stops it."""
    return Told(None, 1, None)


def test_out_of_time_the_best_of_what_runs_and_of_local_is_taken(toy, monkeypatch):
    fleet, jobs = toy
    monkeypatch.setattr(scipy.optimize, "milp", told_nothing)
    place = Assignment(np.array([0, -1, -1, 2]), np.array([1, -1, -1, 0]))  # the optimum, 4.62 EUR, and it runs
    running = Running(*place, open_nodes(fleet, fleet.node_gpus))
    found = decide_exactly(fleet, jobs, 0.0, DEFAULTS, running)
    by_local = rollout(fleet, jobs, 0.0)[0]
    values = [objective_eur(fleet, jobs, 0.0, one) for one in (found, by_local)]
    assert found.proof == (1.0, False, True) and values[0] <= values[1]
    # who runs goes on; B or C may join on n2, at 0.36 or 0.24 EUR more
    monkeypatch.setattr(policies, "decide_by_rollout", lambda *_: Assignment(np.full(4, -1), np.full(4, -1)))
    kept = decide_exactly(fleet, jobs, 0.0, DEFAULTS, Running(*place, open_nodes(fleet, fleet.node_gpus)))
    assert kept.node[[0, 3]].tolist() == [0, 2] and objective_eur(fleet, jobs, 0.0, kept) <= 4.62 + 0.36 + 1e-9


def test_what_the_solver_has_found_is_kept_if_it_is_better(toy, monkeypatch):
    fleet, jobs = toy
    solved = scipy.optimize.milp
    asked: list[dict[str, Any]] = []

    def stopped(*given: Any, options: dict[str, Any], **named: Any) -> Any:
        asked.append(dict(options))  # SciPy takes things out of it
        done = solved(*given, options=options, **named)
        done.status = 4  # stopped at a number of nodes
        return done

    monkeypatch.setattr(scipy.optimize, "milp", stopped)
    found = decide_exactly(fleet, jobs, 0.0, DEFAULTS, nothing_runs(fleet, 4))
    assert objective_eur(fleet, jobs, 0.0, found) == pytest.approx(4.62)
    assert asked[0]["node_limit"] == MOST_NODES and asked[0]["time_limit"] == DEFAULTS.time_limit_s
    assert not found.proof.is_proved and not found.proof.is_out_of_time and found.proof.gap <= 1e-6


def test_a_day_repeats_to_the_last_bit_and_says_how_good_its_decisions_are():
    instance = generate(3, 1, 1.0)
    one, other = (simulate(instance, "exact") for _ in range(2))
    assert one.history.equals(other.history) and one.intervals.equals(other.intervals)
    assert len(one.proofs) == len(one.intervals) and all(proof == (0.0, True, False) for proof in one.proofs)
    summary = report_of(instance, "exact", is_simulated=True).summary
    assert [summary[key] for key in ("mean_gap_percent", "largest_gap_percent", "decisions_not_proved",
                                     "decisions_out_of_time")] == [0, 0, 0, 0]
    assert "mean_gap_percent" not in report_of(instance, "greedy", is_simulated=True).summary


def test_a_day_without_time_ends_all_the_same_and_says_so(monkeypatch):
    monkeypatch.setattr(scipy.optimize, "milp", told_nothing)
    summary = report_of(toy_instance(), "exact", is_simulated=True).summary
    assert summary["decisions_not_proved"] == summary["decisions_out_of_time"] == summary["decisions"]
    assert summary["mean_gap_percent"] == summary["largest_gap_percent"] == 100
