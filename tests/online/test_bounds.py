"""No scheduler beats the bounds of chapter 28: optima by enumeration, by binary program, and every policy."""
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations

import numpy as np
import pytest

from sched_lab.cluster import Cluster, empty_state, toy_cluster
from sched_lab.online.bounds import (
    METHODS,
    MICRO,
    NODE_WATTS,
    Prices,
    Service,
    aggregated_bound,
    best_node,
    bound,
    eopc_lower_bound_w,
    gpu_rules,
    grar_question,
    grar_upper_bound,
    grid_of,
    kinds_of,
    lower_lines,
    power_question,
    price_bound,
    program_of,
    safe_lower_bound,
)
from sched_lab.online.inflation import SAMPLINGS, inflate
from sched_lab.online.model import check_placements, final_state
from sched_lab.online.policies import POLICIES
from sched_lab.power import CPU_POWER_W, datacenter_power_w, power_of
from sched_lab.traces import Arrivals, Tasks, admits, toy_tasks
from studies.placement_optimum import optimal_placement
from tests.fleet.problems import texts

NAMES = [*POLICIES, "pwr-fgd:0.1"]
SLACK = 1e-6


def random_case(seed, num_nodes=4, num_tasks=12):
    """Draw a tiny cluster, a tiny trace, and arrivals with repetitions, so that classes have several tasks."""
    rng = np.random.default_rng(seed)
    kinds = [(16, 64, 2, "T4"), (32, 64, 3, "G2"), (48, 128, 1, "A100"), (32, 32, 0, ""), (8, 16, 1, "T4")]
    nodes = [kinds[i] for i in rng.integers(len(kinds), size=rng.integers(1, num_nodes + 1))]
    cpu, memory, gpus, model = zip(*nodes, strict=True)
    cluster = Cluster(texts(f"n{i}" for i in range(len(nodes))), np.array(cpu) * 1000, np.array(memory) * 1024,
                      np.array(gpus), texts(model), texts([""] * len(nodes)))
    tasks = []
    for _ in range(5):
        num = int(rng.choice([0, 1, 1, 1, 2]))
        milli = int(rng.choice([270, 340, 510, 600, 1000])) if num == 1 else 1000 * (num > 0)
        spec = str(rng.choice(["", "", "T4", "G2|A100"])) if num else ""
        cpu = int(rng.choice([500, 2000, 3152, 8000, 20000]))
        memory = int(rng.choice([0, 8, 30])) * 1024
        tasks.append((cpu, memory, num, milli, spec))
    cpu, memory, num, milli, spec = zip(*tasks, strict=True)
    trace = Tasks(texts(f"t{i}" for i in range(5)), np.array(cpu), np.array(memory), np.array(num), np.array(milli),
                  texts(spec), texts([""] * 5))
    return cluster, trace, rng.integers(5, size=rng.integers(1, num_tasks + 1))


def every_placement(cluster, tasks, task_row):
    """Every way to place some of the arrivals, by trying; yields the state and the arrivals that were placed."""

    def descend(number, state, placed):
        if number == len(task_row):
            yield state, placed
            return
        yield from descend(number + 1, state, placed)
        row = task_row[number]
        for node in range(len(cluster)):
            fits = (tasks.cpu_milli[row] <= state.cpu_left_milli[node]
                    and tasks.memory_mib[row] <= state.memory_left_mib[node]
                    and admits(tasks.gpu_spec[row], cluster.gpu_model[node])
                    and admits(tasks.cpu_spec[row], cluster.cpu_model[node]))
            for gpus in combinations(range(cluster.num_gpus[node]), tasks.num_gpus[row]) if fits else ():
                if all(state.gpu_left_milli[node, gpu] >= tasks.gpu_milli[row] for gpu in gpus):
                    left = type(state)(*(array.copy() for array in state))
                    left.cpu_left_milli[node] -= tasks.cpu_milli[row]
                    left.memory_left_mib[node] -= tasks.memory_mib[row]
                    left.gpu_left_milli[node, list(gpus)] -= tasks.gpu_milli[row]
                    yield from descend(number + 1, left, [*placed, number])

    yield from descend(0, empty_state(cluster), [])


@pytest.mark.parametrize("seed", range(6))
def test_optimum_lies_between_every_policy_and_both_bounds(seed):
    cluster, tasks, rows = random_case(100 + seed)
    power = power_of(cluster, ("eq1", "package")[seed % 2], load_curve=("step", "linear", "concave")[seed % 3])
    demand = tasks.gpu_demand_milli[rows]
    best = optimal_placement(cluster, tasks, rows)
    cheapest = optimal_placement(cluster, tasks, rows, power)
    for optimum in (best, cheapest):
        check_placements(cluster, tasks, optimum.placements)
    if math.isfinite(cheapest.value):
        state = final_state(cluster, tasks, cheapest.placements)
        assert sum(datacenter_power_w(power, state)) == pytest.approx(cheapest.value)
        assert (cheapest.placements.node >= 0).all()
    grar = best.value / demand.sum() if demand.any() else 1.0
    loose, tight = (grar_upper_bound(cluster, tasks, rows, method=method) for method in METHODS)
    assert grar <= tight <= loose
    loose_w, tight_w = (eopc_lower_bound_w(cluster, tasks, rows, power=power, method=method) for method in METHODS)
    assert loose_w <= tight_w <= cheapest.value + SLACK
    lowest_w: dict[tuple[int, int], float] = {}
    for policy in NAMES:
        served, cpu, watts = outcome(cluster, tasks, rows, policy, power)
        lowest_w[served, cpu] = min(watts, lowest_w.get((served, cpu), math.inf))
    for (served, cpu), watts in lowest_w.items():
        assert served <= best.value
        lower_w = optimal_placement(cluster, tasks, rows, power, served).value
        for method in METHODS:
            bound_w = partial(eopc_lower_bound_w, cluster, tasks, rows, power=power, method=method)
            assert bound_w(served=Service(served)) <= lower_w + SLACK <= watts + 2 * SLACK
            assert bound_w(served=Service(served, cpu)) <= watts + SLACK


@pytest.mark.parametrize("seed", range(6))
def test_bounds_and_the_binary_program_know_cpu_models_and_watts_of_single_nodes(seed):
    cluster, tasks, rows = random_case(300 + seed, num_nodes=3, num_tasks=4)
    rng = np.random.default_rng(seed)
    names = list(CPU_POWER_W)
    cluster = replace(cluster, cpu_model=texts(rng.choice(names, len(cluster))))
    tasks = replace(tasks, cpu_spec=texts(rng.choice(["", "", names[0], "|".join(names[:2])], len(tasks))))
    power = power_of(cluster, ("eq1", "package")[seed % 2], load_curve=("step", "linear", "concave")[seed % 3])
    own = [np.maximum(1, getattr(power, name) // rng.integers(1, 4, len(cluster))) for name in NODE_WATTS]
    power = power._replace(**dict(zip(NODE_WATTS, own, strict=True)))
    demand = tasks.gpu_demand_milli[rows]
    outcomes = [(int(demand[placed].sum()), int(tasks.cpu_milli[rows][placed].sum()), len(placed),
                 sum(datacenter_power_w(power, state))) for state, placed in every_placement(cluster, tasks, rows)]
    most = max(served for served, *_ in outcomes)
    grar = most / demand.sum() if demand.any() else 1.0
    assert optimal_placement(cluster, tasks, rows).value == most
    least_all_w = min((watts for _, _, number, watts in outcomes if number == len(rows)), default=math.inf)
    assert optimal_placement(cluster, tasks, rows, power).value == pytest.approx(least_all_w, abs=1e-6)
    half = most // 2
    least_half_w = min(watts for served, _, _, watts in outcomes if served >= half)
    assert optimal_placement(cluster, tasks, rows, power, half).value == pytest.approx(least_half_w, abs=1e-6)
    for method in METHODS:
        assert grar_upper_bound(cluster, tasks, rows, method=method) >= grar
        all_w = eopc_lower_bound_w(cluster, tasks, rows, power=power, method=method)
        assert all_w <= least_all_w + SLACK
        for served, cpu in {(served, cpu) for served, cpu, *_ in outcomes}:
            least_w = min(watts for gpu, vcpu, _, watts in outcomes if gpu >= served and vcpu >= cpu)
            assert eopc_lower_bound_w(cluster, tasks, rows, power=power, served=Service(served, cpu),
                                      method=method) <= least_w + SLACK


def outcome(cluster, tasks, rows, policy, power):
    """Run a policy; return the GPU and CPU demand it served, and EOPC."""
    placed = inflate(cluster, tasks, policy, arrivals=Arrivals(rows, np.arange(len(cluster)))).placements
    taken = rows[placed.node >= 0]
    watts = sum(datacenter_power_w(power, final_state(cluster, tasks, placed)))
    return int(tasks.gpu_demand_milli[taken].sum()), int(tasks.cpu_milli[taken].sum()), watts


@pytest.mark.parametrize("seed", range(6))
def test_any_prices_whatever_give_a_bound(seed):
    """The theorem asks nothing of the prices; column generation only looks for good ones."""
    cluster, tasks, rows = random_case(200 + seed)
    kinds = kinds_of(cluster, tasks, rows)
    rng = np.random.default_rng(seed)
    power = power_of(cluster)
    questions = [(grar_question(kinds), -optimal_placement(cluster, tasks, rows).value, -1),
                 (power_question(kinds, power), optimal_placement(cluster, tasks, rows, power).value, 1),
                 (power_question(kinds, power, Service(500)),
                  optimal_placement(cluster, tasks, rows, power, 500).value, -1)]
    for question, optimum, sign in questions:
        for _ in range(20):
            task = rng.integers(0, 200 * MICRO, len(kinds.count)) * sign
            service = rng.integers(0, MICRO, len(question.wanted))
            bound, columns = price_bound(question, grid_of(kinds.classes), Prices(task, service))
            assert bound / MICRO + question.idle_w <= optimum + SLACK
            assert (columns.content >= 0).all()


def test_best_node_is_the_best_of_all_contents():
    """A bee of 8 vCPU and 2 GPUs: it holds at most two of the first class, one of the second, four of the third."""
    cluster = replace(toy_cluster().take(np.array([1])), num_gpus=np.array([2]), cpu_milli=np.array([8000]))
    tasks = toy_tasks().take(np.array([0, 3, 6]))  # 500 with 4 vCPU, one whole GPU with 8 vCPU, 300 with 2 vCPU
    power = power_of(cluster, load_curve="concave")
    question = power_question(kinds_of(cluster, tasks, np.arange(3)), power)
    several = np.array([0, 0, 1, 2, 2, 2, 2])
    contents = [(np.bincount(several[placed], minlength=3), sum(datacenter_power_w(power, state)))
                for state, placed in every_placement(cluster, tasks, several)]
    for seed in range(20):
        worth = np.random.default_rng(seed).integers(0, 200 * MICRO, 3)
        expected = max(worth @ content / MICRO - watts for content, watts in contents)
        value, best, net = best_node(question, grid_of(question.kinds.classes), 0, worth)
        assert value / MICRO - question.idle_w == pytest.approx(expected, abs=1e-5)
        assert net.max() == value and any((best[net.argmax()] == content).all() for content, _ in contents)


def test_the_safe_bound_holds_for_multipliers_that_are_wrong():
    """Weak duality: random multipliers give a bound below the optimum of the program, the solver's a tight one."""
    cluster, tasks, rows = random_case(7)
    question = power_question(kinds_of(cluster, tasks, rows), power_of(cluster), Service(1000))
    program = program_of(question)
    (bound, multiplier) = aggregated_bound(question)
    rng = np.random.default_rng(0)
    for scale in (1e-9, 1e-6, 1e-3, 1, 10):
        wrong = np.maximum(0, multiplier * (1 + scale * rng.standard_normal(len(multiplier))))
        assert safe_lower_bound(program, wrong) <= bound + Fraction(1, 10**5)
    by_hand = multiplier @ -program.rhs + np.minimum(0, program.cost + program.matrix.T @ multiplier) @ program.upper
    assert float(bound) == pytest.approx(by_hand, rel=1e-9)


def test_no_content_of_a_gpu_breaks_a_rule():
    sizes = [100, 251, 334, 335, 499, 501, 1000]
    classes = Tasks(texts("abcdefg"), np.zeros(7, int), np.zeros(7, int), np.ones(7, int), np.array(sizes),
                    texts([""] * 7), texts([""] * 7))
    rules = gpu_rules(classes)
    for count in range(1, 5):
        for content in combinations(sorted(sizes * 4), count):
            if sum(content) <= 1000:
                weights = [sum(weight[sizes.index(size)] for size in content) for weight, _ in rules]
                assert all(weight <= limit for weight, (_, limit) in zip(weights, rules, strict=True))


def test_the_lines_lie_below_the_curve_and_touch_its_ends():
    rng = np.random.default_rng(3)
    for length in (1, 2, 3, 50):
        curve = rng.integers(0, 100, length).astype(float)
        highest = np.max([slope * np.arange(length) + start for slope, start in lower_lines(curve)], axis=0)
        assert (highest <= curve).all() and (np.diff(highest, 2) >= -1e-9).all()
        assert highest[[0, -1]] == pytest.approx(curve[[0, -1]], abs=1e-6)


def test_nothing_arrives_nothing_asks_for_a_gpu_nothing_can_host():
    cluster = toy_cluster()
    tasks = toy_tasks()
    idle_w = sum(datacenter_power_w(power_of(cluster), empty_state(cluster)))
    nobody = np.zeros(0, np.int64)
    no_gpu = np.array([5, 5])  # task six, 8 vCPU each: one CPU wakes, of a node that has a CPU to count
    elsewhere = replace(tasks, gpu_spec=texts("V100M16" if num else "" for num in tasks.num_gpus))
    for method in METHODS:
        assert grar_upper_bound(cluster, tasks, nobody, method=method) == 1
        assert eopc_lower_bound_w(cluster, tasks, nobody, method=method) == pytest.approx(idle_w)
        assert grar_upper_bound(cluster, tasks, no_gpu, method=method) == 1
        assert idle_w < eopc_lower_bound_w(cluster, tasks, no_gpu, method=method) <= idle_w + 105
        assert grar_upper_bound(cluster, elsewhere, np.arange(9), method=method) == 0
        assert eopc_lower_bound_w(cluster, elsewhere, np.arange(9), method=method) == math.inf
        assert eopc_lower_bound_w(cluster, tasks, np.arange(9), served=Service(7001), method=method) == math.inf
    assert optimal_placement(cluster, tasks, nobody).value == 0
    assert optimal_placement(cluster, elsewhere, np.arange(9), power_of(cluster)).value == math.inf


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="choose one of aggregated, patterns"):
        grar_upper_bound(toy_cluster(), toy_tasks(), np.arange(9), method="simplex")


@pytest.mark.parametrize(("sampling", "until"), [*zip(SAMPLINGS, [None, 0.4], strict=True)])
def test_no_policy_serves_more_than_the_bound_of_its_seed(sampling, until):
    cluster = toy_cluster()
    tasks = toy_tasks()
    limit = bound(cluster, tasks, seed=1, until=until, arrivals=sampling)
    for policy in NAMES:
        run = inflate(cluster, tasks, policy, seed=1, until=until, arrivals=sampling)
        assert run.summary["grar"] <= limit + 1e-12
    rows = run.placements.task_row
    assert limit == grar_upper_bound(cluster, tasks, rows)
    recorded = Arrivals(rows, np.arange(len(cluster)))
    assert bound(cluster, tasks, arrivals=recorded) == limit
    assert bound(cluster, tasks, arrivals=recorded, until=0.2) >= limit
