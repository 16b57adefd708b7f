"""No bound of the family lies above what a search of every order of every event finds, with every option it takes."""
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest

from sched_lab.far.bounds import (
    area_bound,
    bound,
    longest_bound,
    lower_bound,
    optimum,
    optimum_with_reconfiguration,
)
from sched_lab.far.due import OBJECTIVES, best_list, tardiness_bound, value_of
from sched_lab.far.mig import mig_of, without_reconfiguration
from sched_lab.far.mixed import mixed_bound
from sched_lab.far.profiles import ProfileMig, check_problem, fault_of, model_named, profiled
from sched_lab.far.report import report_of
from sched_lab.far.tasks import Terms, no_terms
from tests.far.cases import batch_of
from tools.widget_kernels import deadline_bound, gpu_of

SLACK = 1 + 1e-9  # bounds are numbers of a computer


def excludes(mig, i, j):
    """Whether two instances cannot exist together, by NVIDIA's rules or by the slices that they block."""
    tree = mig.tree
    if tree.gpu[i] != tree.gpu[j]:
        return False
    if isinstance(mig, ProfileMig):
        return fault_of(mig.gpus[tree.gpu[i]], [(mig.profile(k), int(mig.start[k])) for k in (i, j)]) is not None
    return tree.first_slice[i] < tree.first_slice[j] + tree.span[j] and (
        tree.first_slice[j] < tree.first_slice[i] + tree.span[i])


class State(NamedTuple):
    """Tasks left; until when each instance is busy; those that ran a task; when others were gone; end of operations."""

    left: frozenset
    busy_s: dict
    used: frozenset
    gone_s: dict
    operated_s: dict


class Everything:
    """The least makespan, or weighted tardiness, of all schedules below a limit; infinite if none is below it.

    In some best schedule every creation, destruction and task begins as early as those that began before it allow. So
    all events are tried one after the other by when they begin, each as early as it can be.
    """

    def __init__(self, mig, batch, objective, limit_s=np.inf):
        tree = mig.tree
        terms = batch.terms or no_terms(len(batch))
        rows = range(len(tree.gpu))
        self.objective = objective
        self.time_s = batch.times_s[:, tree.size_index].tolist()
        self.least_s = batch.times_s.min(axis=1).tolist()
        self.release_s, self.due_s, self.weight = (terms[k].tolist() for k in range(3))
        self.create_s, self.destroy_s, self.turn = (
            column.tolist() for column in (tree.create_s, tree.destroy_s, tree.sequence))
        self.excluded = [[j for j in rows if i != j and excludes(mig, i, j)] for i in rows]
        self.limit_s = limit_s
        self.best_s = np.inf
        self.seen = set()
        busy_s = dict(zip(terms.instance.tolist(), terms.until_s.tolist(), strict=True))
        self.go_on(State(frozenset(range(len(batch))), busy_s, frozenset(busy_s), {}, {}), 0.0, 0.0)

    def with_end(self, value_s, task, end_s):
        """Give the value when one more task has ended."""
        if self.objective == "makespan":
            return max(value_s, end_s)
        return value_s + self.weight[task] * max(0.0, end_s - self.due_s[task])

    def go_on(self, state, value_s, now_s):
        """Try all that can begin next, not before what began last."""
        alone_s = value_s  # as if each task that is left had GPUs of its own
        for task in state.left:
            alone_s = self.with_end(alone_s, task, max(now_s, self.release_s[task]) + self.least_s[task])
        key = (state.left, state.used, *(frozenset(what.items()) for what in (*state[1:2], *state[3:])), value_s, now_s)
        if alone_s >= self.limit_s or key in self.seen:
            return
        self.seen.add(key)
        if not state.left:
            self.best_s = self.limit_s = value_s
            return
        wanted = [i for i in range(len(self.turn)) if i not in state.busy_s
                  and any(self.time_s[task][i] < np.inf for task in state.left)]
        for begin_s, after, done_s in [*self.starts(state, value_s), *self.creations(state, value_s, wanted),
                                       *self.destructions(state, value_s, wanted)]:
            if begin_s >= now_s:
                self.go_on(after, done_s, begin_s)

    def starts(self, state, value_s):
        for i, free_s in state.busy_s.items():
            for task in state.left:
                if self.time_s[task][i] < np.inf:
                    begin_s = max(free_s, self.release_s[task])
                    end_s = begin_s + self.time_s[task][i]
                    after = state._replace(left=state.left - {task}, busy_s=state.busy_s | {i: end_s},
                                           used=state.used | {i})
                    yield begin_s, after, self.with_end(value_s, task, end_s)

    def creations(self, state, value_s, wanted):
        for i in wanted:
            if state.busy_s.keys().isdisjoint(self.excluded[i]):
                begin_s = max(state.operated_s.get(self.turn[i], 0.0),
                              *(state.gone_s.get(j, 0.0) for j in [i, *self.excluded[i]]))
                ready_s = begin_s + self.create_s[i]
                yield begin_s, state._replace(busy_s=state.busy_s | {i: ready_s}, used=state.used - {i},
                                              operated_s=state.operated_s | {self.turn[i]: ready_s}), value_s

    def destructions(self, state, value_s, wanted):
        for j in state.used & {j for i in wanted for j in self.excluded[i]} & state.busy_s.keys():
            begin_s = max(state.operated_s.get(self.turn[j], 0.0), state.busy_s[j])
            end_s = begin_s + self.destroy_s[j]
            yield begin_s, state._replace(busy_s={i: free_s for i, free_s in state.busy_s.items() if i != j},
                                          gone_s=state.gone_s | {j: end_s},
                                          operated_s=state.operated_s | {self.turn[j]: end_s}), value_s


def is_below(mig, batch, bound_s, objective="makespan"):
    """Whether some schedule is better than a bound says that any can be."""
    return Everything(mig, batch, objective, bound_s / SLACK - 1e-9).best_s < np.inf


def a30(num_gpus=1, **more):
    return mig_of("A30", num_gpus, **more)


def dear(models, own_s):
    """GPUs of some models on which every operation takes as long as a task."""
    gpus = [model_named(name) for name in models]
    own = {(model.name, profile.name): own_s for model in gpus for profile in model.profiles}
    return profiled(gpus, own=own)


PROBLEMS = {  # GPUs, tasks, columns that may be used (None: all), what exists
    "A30": (a30, 3, None, []),
    "A30, cut in no time": (lambda: without_reconfiguration(a30()), 3, None, []),
    "A30, busy": (a30, 3, None, [4, 1]),
    "two A30": (partial(a30, 2), 2, None, []),
    "two A30, one sequence": (partial(a30, 2, has_one_sequence=True), 2, None, []),
    "two A30, one busy": (partial(a30, 2), 2, None, [0]),
    "A100": (partial(mig_of, "A100"), 2, [0, 2, 4], []),
    "H100 and H200": (lambda: profiled([model_named("H100 PCIe"), model_named("H200")]), 2, [7, 8, 12], []),
    "A30 profiles": (lambda: profiled([model_named("A30")]), 3, [0, 2, 4], []),
    "A30 profiles, dear": (lambda: dear(["A30"], (7.0, 5.0)), 2, None, []),
    "A30 profiles, dear and busy": (lambda: dear(["A30"], (7.0, 5.0)), 2, None, [0]),
}


def drawn(rng, mig, num_tasks, columns, held):
    """Draw a batch, short against the operations or long, with releases, due dates and weights."""
    scale = rng.choice([0.05, 0.3, 1.0])
    times_s = -np.sort(-rng.integers(2, 30, (num_tasks, len(mig.sizes))).astype(float), axis=1) * scale
    kept = np.arange(len(mig.sizes)) if columns is None else np.array(columns)
    times_s[:, np.setdiff1d(np.arange(len(mig.sizes)), kept)] = np.inf
    gaps = rng.random(times_s.shape) < 0.2
    gaps[:, kept[-1]] = False
    times_s[gaps] = np.inf
    terms = Terms(rng.integers(0, 12, num_tasks) * scale * rng.integers(0, 2), rng.integers(1, 40, num_tasks) * scale,
                  rng.integers(0, 4, num_tasks).astype(float), np.array(held, np.int64),
                  rng.integers(0, 9, len(held)) * scale)
    terms.due_s[rng.random(num_tasks) < 0.2] = np.inf
    return batch_of(times_s, terms)


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_bound_lies_above_the_best_of_all_schedules(name):
    make, num_tasks, columns, held = PROBLEMS[name]
    mig = make()
    free = without_reconfiguration(mig)
    rng = np.random.default_rng(sum(map(ord, name)))
    num_reached = 0
    for trial in range(3):
        batch = drawn(rng, mig, num_tasks, columns, held)
        for objective in OBJECTIVES:
            bound_s = tardiness_bound(mig, batch) if objective == "tardiness" else bound(mig, batch)
            assert not is_below(mig, batch, bound_s, objective), (trial, objective)
            schedule = best_list(mig, batch, objective, 30)
            check_problem(mig, batch, schedule)
            num_reached += value_of(batch.terms, schedule, objective)[0] <= bound_s * SLACK
        assert not is_below(free, batch, bound(mig, batch, with_reconfiguration=False))
        if not isinstance(mig, ProfileMig) and not held:
            release_s = batch.terms.release_s
            assert not is_below(free, batch, max(
                r + optimum(mig, batch.times_s[release_s >= r]).makespan_s for r in release_s))
    assert num_reached  # some bound is as high as it can be


@pytest.mark.parametrize("name", [name for name, (*_, held) in PROBLEMS.items() if not held])
def test_no_bound_of_a_batch_that_is_all_there_lies_above_the_best_of_all_schedules(name):
    make, num_tasks, columns, _ = PROBLEMS[name]
    mig = make()
    free = without_reconfiguration(mig)
    rng = np.random.default_rng(sum(map(ord, name)) + 1)
    for _ in range(2):
        batch = replace(drawn(rng, mig, num_tasks, columns, []), terms=None)
        times_s = batch.times_s
        assert not is_below(mig, batch, max(bound(mig, batch), mixed_bound(mig, times_s)))
        assert not is_below(free, batch, bound(mig, batch, with_reconfiguration=False))
        if isinstance(mig, ProfileMig):
            continue
        assert bound(mig, batch) == lower_bound(mig, times_s)
        assert not is_below(free, batch, max(area_bound(mig, times_s), longest_bound(mig, times_s)))
        if mig.num_gpus == 1 and np.isfinite(times_s).all():
            assert not is_below(mig, batch, deadline_bound(gpu_of(mig), times_s))
        for solve, gpus in ((optimum_with_reconfiguration, mig), (optimum, free)):
            cut = [solve(mig, times_s, max_visits=visits) for visits in (0, 10, 100)]
            found = solve(mig, times_s)
            check_problem(gpus, batch, found.schedule)
            assert found.is_proved and not is_below(gpus, batch, found.makespan_s)
            assert max(one.bound_s for one in cut) <= found.makespan_s * SLACK


def test_an_instance_may_be_made_before_its_task_is_there():
    """On an A30, tasks released at 0.5 and 0.1 s: `lists` is done at 0.80 s, so nothing later is a bound."""
    times_s = np.array([[0.8, 0.55, 0.3], [0.6, 0.25, 0.25]])
    terms = no_terms(2)._replace(release_s=np.array([0.5, 0.1]))
    batch = batch_of(times_s, terms)
    mig = a30()
    assert report_of(mig, batch, "lists").summary["makespan_s"] == pytest.approx(0.80)
    far = report_of(mig, batch, "far")
    assert far.summary["makespan_s"] == pytest.approx(0.90) and far.summary["lower_bound_s"] <= 0.80 * SLACK
    assert not any("no schedule is faster" in sentence for sentence in far.answer())
