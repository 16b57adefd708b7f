"""FAR: the authors' program, plain re-implementations of its algorithms, and laws on random batches."""
import heapq
import json
from typing import Any

import numpy as np
import pytest

from sched_lab.far.allocations import family
from sched_lab.far.mig import Mig, check_schedule, mig_of, without_reconfiguration
from sched_lab.far.refine import (
    best_plan,
    far,
    refine,
)
from sched_lab.far.repartition import longest_first, repartition, schedule_of
from sched_lab.lab.frames import InputError
from sched_lab.traces import find_reference
from tests.far.cases import any_times

MODELS = ("A30", "A100", "H100")
GOLDEN = find_reference("far/golden.json")
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())["instances"] if GOLDEN else []
def plan_of(mig: Mig, times_s: np.ndarray, *, as_authors: bool = False) -> tuple[np.ndarray, np.ndarray, float]:
    """Plan of phases 1 and 2, the ends of its instances, its makespan."""
    return best_plan(mig.tree, times_s, np.array(mig.sizes), as_authors)[:3]


# --- the authors' program and the reference implementation -----------------------------------------------------------

def assert_is_reference(case: dict[str, Any], *, as_authors: bool) -> None:
    """FAR's schedule ends, is expected to end, and was refined as in the reference implementation."""
    mig = mig_of(case["gpu"])
    times_s = np.array(case["times"])
    result = far(mig, times_s, as_authors=as_authors)
    check_schedule(result.schedule, times_s)
    reference = case["ref_far"]
    ends_s = [result.before_s, result.schedule.makespan_s, result.expected_s]
    assert ends_s == pytest.approx(
        [case["cpp_phase12"]["makespan"], reference["makespan"], reference["predicted"]], abs=1e-6)
    assert (result.moves, result.swaps) == (reference["moves"], reference["swaps"])
    assert len(family(times_s, np.array(mig.sizes), as_authors=as_authors)) == case["family"]


@pytest.mark.skipif(GOLDEN is None, reason="../shared/reference/far/golden.json is absent")
@pytest.mark.parametrize("model", sorted({case["gpu"] for case in CASES}))
def test_far_is_the_reference_and_with_the_authors_ties_their_program(model):
    """Phase 2 ends when the reference does; then every task is where their program puts it, and FAR as without ties."""
    mig = mig_of(model)
    cases = [case for case in CASES if case["gpu"] == model]
    assert any(case["tie_free"] for case in cases)
    for case in cases:
        times_s = np.array(case["times"])
        assert plan_of(mig, times_s)[2] == pytest.approx(case["ref_phase2"]["paper_tie_small"], abs=1e-6)
        plan, _, makespan_s = plan_of(mig, times_s, as_authors=True)
        placed = {task["task"]: (task["start_slice"], task["size"]) for task in case["cpp_phase12"]["placed"]}
        assert {k: (mig.tree.first_slice[i], mig.tree.size[i]) for k, i in enumerate(plan)} == placed
        assert makespan_s == pytest.approx(case["cpp_phase12"]["makespan"], abs=1e-6)
        for as_authors in (True, False) if case["tie_free"] else (True,):
            assert_is_reference(case, as_authors=as_authors)


# --- laws on random batches ------------------------------------------------------------------------------------------

def check_far(mig: Mig, times_s: np.ndarray, *, as_authors: bool = False) -> None:
    """Everything that `far` promises about a batch."""
    result = far(mig, times_s, as_authors=as_authors)
    makespan_s = result.schedule.makespan_s
    check_schedule(result.schedule, times_s)
    area = (times_s * np.array(mig.sizes)).min(axis=1).sum()  # least work of each task
    longest_s = times_s.min(axis=1).max()                     # the longest task at its fastest
    assert makespan_s >= max(longest_s, area / mig.total_slices) * (1 - 1e-9)
    unrefined = schedule_of(mig, times_s, plan_of(mig, times_s, as_authors=as_authors)[0])
    assert makespan_s <= unrefined.makespan_s * (1 + 1e-9)
    if not mig.tree.create_s.any():
        assert makespan_s == pytest.approx(result.expected_s, rel=1e-9)
        assert result.expected_s <= result.before_s * (1 + 1e-9)


@pytest.mark.parametrize("is_free", [False, True], ids=["costs", "free"])
@pytest.mark.parametrize("num_gpus", [1, 2, 3])
@pytest.mark.parametrize("model", MODELS)
def test_any_schedule_is_valid_and_between_the_bounds(model, num_gpus, is_free):
    rng = np.random.default_rng([53, MODELS.index(model), num_gpus, is_free])
    mig = mig_of(model, num_gpus, has_one_sequence=bool(num_gpus == 3))
    mig = without_reconfiguration(mig) if is_free else mig
    for k in range(30):
        check_far(mig, any_times(rng, mig), as_authors=k % 10 == 0)


def test_times_are_left_alone():
    mig = mig_of("A100")
    times_s = any_times(np.random.default_rng(9), mig)
    kept = times_s.copy()
    far(mig, times_s)
    assert (times_s == kept).all()


# --- Algorithm 1, once more, from the paper --------------------------------------------------------------------------

def plain_repartition(mig: Mig, times_s: np.ndarray, allocation: np.ndarray) -> tuple[dict[int, int], float]:
    """Algorithm 1 line by line with dictionaries; instances free at the same time come first in, first out."""
    tree = mig.tree
    sizes = mig.sizes
    waiting = {size: sorted((k for k in range(len(allocation)) if sizes[allocation[k]] == size),
                            key=lambda k: -times_s[k, allocation[k]]) for size in sizes}
    heap: list[tuple[float, int, int]] = []
    tasks: dict[int, list[int]] = {i: [] for i in range(len(tree.gpu))}
    reconfig_end: dict[int, float] = {q: 0.0 for q in tree.sequence.tolist()}
    plan = {}
    makespan_s = 0.0
    count = 0
    for root in [i for i in tasks if tree.parent[i] < 0]:
        heapq.heappush(heap, (0.0, count := count + 1, root))
    while heap:
        end_s, _, i = heapq.heappop(heap)
        size = int(tree.size[i])
        q = int(tree.sequence[i])
        if waiting[size]:
            if not tasks[i]:
                end_s = reconfig_end[q] = max(reconfig_end[q], end_s) + tree.create_s[i]
            task = waiting[size].pop(0)
            tasks[i].append(task)
            plan[task] = i
            end_s += times_s[task, sizes.index(size)]
            makespan_s = max(makespan_s, end_s)
            heapq.heappush(heap, (end_s, count := count + 1, i))
        elif any(waiting.values()):
            if tasks[i]:
                reconfig_end[q] = max(reconfig_end[q], end_s) + tree.destroy_s[i]
            for child in [j for j in range(len(tree.gpu)) if tree.parent[j] == i]:
                heapq.heappush(heap, (end_s, count := count + 1, child))
    return plan, makespan_s


@pytest.mark.parametrize("num_gpus", [1, 2])
@pytest.mark.parametrize("model", ["A30", "A100", "H100"])
def test_algorithm_1_is_its_plain_form(model, num_gpus):
    rng = np.random.default_rng([1, num_gpus])
    mig = mig_of(model, num_gpus)
    for _ in range(60):
        times_s = rng.uniform(1, 30, (int(rng.integers(1, 16)), len(mig.sizes)))
        allocation = rng.integers(0, len(mig.sizes), len(times_s))
        plan, _, makespan_s = repartition(mig.tree, times_s, longest_first(times_s), allocation, np.inf, False)
        plain, plain_s = plain_repartition(mig, times_s, allocation)
        assert dict(enumerate(plan.tolist())) == plain
        assert makespan_s == pytest.approx(plain_s, rel=1e-12)


def test_phases_1_and_2_keep_the_first_best_member():
    rng = np.random.default_rng(4)
    for _ in range(40):
        mig = mig_of(MODELS[rng.integers(3)])
        times_s = any_times(rng, mig)
        plain = [plain_repartition(mig, times_s, member)[1] for member in family(times_s, np.array(mig.sizes))]
        _, _, makespan_s, member = best_plan(mig.tree, times_s, np.array(mig.sizes), False)
        assert makespan_s == pytest.approx(min(plain), rel=1e-12)
        assert plain[member] == pytest.approx(min(plain), rel=1e-12)
        assert member == 0 or min(plain[:member]) > makespan_s * (1 - 1e-12)


# --- Algorithm 2, once more, from the paper --------------------------------------------------------------------------

Operation = tuple[str, int, int, int]  # "move", task, from, to; or "swap", longer task, its instance, shorter task


def plain_operation(mig: Mig, times_s: np.ndarray, plan: list[int], slice_s: dict[tuple[int, int], float],
                    i: int, makespan_s: float) -> tuple[Operation, int, float] | None:
    """Follow lines 11-18 at instance `i`: the operation, the other instance, the seconds that are given away."""
    tree = mig.tree
    slack_s = 1e-9 * makespan_s

    def blocked(j: int) -> list[tuple[int, int]]:
        return [(int(tree.gpu[j]), int(tree.first_slice[j]) + k) for k in range(tree.span[j])]

    others = [j for j in range(len(tree.gpu)) if j != i and tree.size[j] == tree.size[i]]
    if not others:
        return None
    other = min(others, key=lambda j: max(slice_s[piece] for piece in blocked(j)))
    gap_s = makespan_s - max(slice_s[piece] for piece in blocked(other))
    time_s = times_s[:, tree.size_index[i]]
    own, theirs = ([task for task, at in enumerate(plan) if at == j] for j in (i, other))
    moves = [(float(time_s[a]), ("move", a, i, other)) for a in own]
    swaps = [(float(time_s[a] - time_s[b]), ("swap", a, i, b)) for a in own for b in theirs]
    for candidates in (moves, swaps):
        if allowed := [(by_s, op) for by_s, op in candidates if slack_s < by_s < gap_s - slack_s]:
            by_s, operation = min(allowed, key=lambda candidate: abs(candidate[0] - gap_s / 2))
            return operation, other, by_s
    return None


def plain_refine(mig: Mig, times_s: np.ndarray, plan: list[int], end_s: np.ndarray) -> tuple[list[Operation], float]:
    """Algorithm 2 line by line; changes the plan, gives the operations and the makespan it expects."""
    tree = mig.tree
    done = []
    stop = False
    blocked = {i: [(int(tree.gpu[i]), int(tree.first_slice[i]) + k) for k in range(tree.span[i])]
               for i in range(len(tree.gpu))}
    slice_s = {piece: max(end_s[i] for i in blocked if piece in blocked[i]) for i in blocked for piece in blocked[i]}
    while not stop:
        makespan_s = max(slice_s.values())
        queue = [i for i in blocked if i not in tree.parent and slice_s[blocked[i][0]] >= makespan_s * (1 - 1e-9)]
        seen = set(queue)
        while queue:
            i = queue.pop(0)
            if tree.parent[i] < 0:
                stop = True
                break
            if (found := plain_operation(mig, times_s, plan, slice_s, i, makespan_s)) is None:
                parent = int(tree.parent[i])
                queue += [parent] if parent not in seen else []
                seen.add(parent)
                continue
            operation, other, by_s = found
            plan[operation[1]] = other
            if operation[0] == "swap":
                plan[operation[3]] = i
            for piece in blocked[i]:
                slice_s[piece] -= by_s
            for piece in blocked[other]:
                slice_s[piece] += by_s
            done.append(operation)
    return done, max(slice_s.values())


def batches_to_refine(num_batches: int):
    """Random batches with some work for phase 3: (GPUs, times, plan of one allocation, ends of its instances)."""
    rng = np.random.default_rng(11)
    for _ in range(num_batches):
        mig = mig_of(MODELS[rng.integers(3)], int(rng.integers(1, 3)))
        mig = without_reconfiguration(mig) if rng.random() < 0.5 else mig
        times_s = any_times(rng, mig)
        times_s[~np.isfinite(times_s)] = 31
        allocation = rng.integers(0, len(mig.sizes), len(times_s))
        yield mig, times_s, *repartition(mig.tree, times_s, longest_first(times_s), allocation, np.inf, False)[:2]


def test_algorithm_2_is_its_plain_form():
    counts = {"move": 0, "swap": 0}
    for mig, times_s, plan, end_s in batches_to_refine(150):
        plain = plan.tolist()
        done, plain_s = plain_refine(mig, times_s, plain, end_s)
        moves, swaps, expected_s = refine(mig.tree, times_s, plan, end_s)
        assert plan.tolist() == plain
        assert expected_s == pytest.approx(plain_s, rel=1e-9)
        assert (moves, swaps) == tuple(sum(op[0] == kind for op in done) for kind in counts)
        counts = {kind: counts[kind] + sum(op[0] == kind for op in done) for kind in counts}
    assert counts["move"] > 30 and counts["swap"] > 5


# --- bad input -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("times_s", "message"), [
    ([1.0, 2.0, 3.0], r"times of shape \(3,\).*one column per size \(1, 2, 4\)"),
    ([[1.0, 2.0]], r"times of shape \(1, 2\)"),
    ([[1.0, 2.0, np.nan]], "time nan s of task 0 on 4 slices"),
    ([[1.0, 1.0, 1.0], [np.inf] * 3], "task 1 fits on no instance"),
])
def test_bad_times_are_named(times_s, message):
    with pytest.raises(InputError, match=message):
        far(mig_of("A30"), np.array(times_s))
