"""One day of one cluster: every schedule is checked, nothing beats the bound, and savings add up."""
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from sched_lab.cluster import Cluster
from sched_lab.fleet.replay.compare import energy_bounds, floors_of
from sched_lab.meter import check_holdings
from studies.day import (
    ASLEEP_W,
    COUNTS,
    HORIZON_S,
    TICK_S,
    bill_of_day,
    bound_of_day,
    check_day,
    draw_day,
    holdings_of,
    nodes_of,
    power_of_nodes,
    whole_day,
)
from studies.day_run import (
    ALL,
    EXTRA,
    PLAIN,
    TRAINERS,
    VARIANTS,
    Happened,
    Now,
    Runs,
    decide_plainly,
    effects_of,
    prepare_day,
    run_day,
    seats_of,
    settled,
    train,
    worth_chart,
)

MODELS = ("T4", "V100M16", "P100", "K80", "A100")


def cluster_of(*models: str) -> Cluster:
    """Return a node of four GPUs for each model."""
    count = len(models)
    return Cluster(np.array([f"n{i}" for i in range(count)], object), np.full(count, 64_000),
                   np.full(count, 262_144), np.full(count, 4), np.array(models, object), np.full(count, "", object))


@cache
def small():
    """Return a day of five nodes, its parts, and what the plain variant made of it."""
    day = draw_day(nodes_of(cluster_of(*MODELS)), 3)
    services, rooms, batches = prepare_day(day)
    runs, end_s = train(day, rooms[False], TRAINERS["plain"])
    return day, rooms, Happened(services[False], runs, end_s, batches[False])


@cache
def frame() -> pd.DataFrame:
    """All variants of that day."""
    return run_day(small()[0]).assign(seed=3)


def test_every_variant_of_a_day_is_there_and_none_beats_the_bound():
    found = frame()
    assert found["variant"].tolist() == [*VARIANTS, *EXTRA]
    assert (found["energy_kwh"] > found["bound_kwh"]).all() and (found["total_eur"] > found["bound_eur"]).all()
    assert found["bound_eur"].gt(0).all() and np.isfinite(found.drop(columns="variant").to_numpy(float)).all()


def test_what_shares_no_node_saves_the_same_with_all_others():
    found = frame().set_index(["seed", "variant"])["total_eur"]
    saved = [found[3, name] - found[3, name.replace(PLAIN, "") + "F"] for name in VARIANTS if "F" not in name]
    assert np.ptp(saved) < 1e-9 and abs(saved[0]) > 0


def test_shares_add_up_to_what_all_save_together():
    effects = effects_of(frame(), "total_eur").set_index(["idea", "way"])["saving"]
    found = frame().groupby("variant")["total_eur"].mean()
    assert effects.xs("share", level="way").sum() == pytest.approx(found[PLAIN] - found[ALL])
    assert effects["all four", "together"] == pytest.approx(found[PLAIN] - found[ALL])
    assert effects["PWR+FGD", "alone"] == pytest.approx(found[PLAIN] - found["P"])
    assert effects["FAR", "last"] == pytest.approx(found["PAH"] - found[ALL])


def with_runs(change):
    """Make a change of the rows of runs, as a frame."""
    def changed(happened: Happened) -> Happened:
        runs = change(pd.DataFrame(happened.runs._asdict()))
        return replace(happened, runs=Runs(*(runs[name].to_numpy() for name in Runs._fields)))
    return changed


def with_first(**cells):
    """Make a change of cells of the first run."""
    return with_runs(lambda runs: pd.concat([runs[:1].assign(**cells), runs[1:]]))


def with_services(**columns):
    """Make a change of columns of services, each a function of the old one."""
    def change(happened: Happened) -> Happened:
        new = {name: of(getattr(happened.services, name).copy()) for name, of in columns.items()}
        return replace(happened, services=happened.services._replace(**new))
    return change


def batch_at_once(happened: Happened) -> Happened:
    first = happened.batches[0]
    length_s = first.end_s - first.start_s
    return replace(happened, batches=(replace(first, start_s=0 * length_s, end_s=length_s),))


@pytest.mark.parametrize(("change", "words"), [
    (with_first(start_s=-TICK_S), "is not free before"), (with_first(end_s=1e9), "torn gang|steps|horizon"),
    (with_first(gpu_mask=7), "cannot run where it is"), (with_first(node=4), "cannot run where it is"),
    (with_first(node=0), "cannot run where it is"), (with_runs(lambda runs: runs[:-1]), "steps"),
    (with_runs(lambda runs: pd.concat([runs, runs[:1]])), "torn gang"),
    (lambda happened: replace(happened, end_s=happened.end_s - 1), "its last run at"),
    (with_services(start_s=lambda s: s + 1, end_s=lambda s: s + 1), "between two"),
    (with_services(end_s=lambda s: s + 1), "does not run for its duration"),
    (with_services(start_s=lambda s: s - TICK_S, end_s=lambda s: s - TICK_S), "before it is submitted"),
    (with_services(node=lambda n: np.full_like(n, 4)), r"Cond. [456]"),
    (with_services(node=lambda n: np.full_like(n, -1)), "without a node"),
    (with_services(node=lambda n: np.full_like(n, 1)), r"Cond. [135]"),
    (batch_at_once, "instance|task|overlap|slice")])
def test_a_wrong_day_is_refused(change, words):
    day, _, happened = small()
    check_day(day, happened)
    with pytest.raises(ValueError, match=words):
        check_day(day, change(happened))


def test_a_gpu_that_a_service_takes_is_not_held_by_a_job():
    day, rooms, happened = small()
    for job, node, mask, start_s, end_s in zip(*happened.runs, strict=True):
        ticks = slice(int(start_s // TICK_S), int(-(-end_s // TICK_S)))
        gpus = np.flatnonzero(mask >> np.arange(4) & 1)
        assert rooms[False].is_whole[ticks, node][:, gpus].all(), (job, start_s)
    assert (rooms[False].usable[:, day.nodes.train_type < 0] == 0).all()


def test_the_bill_is_that_of_the_meter_and_of_the_due_dates():
    day, _, happened = small()
    bill = bill_of_day(day, happened)
    late = np.maximum(0, happened.end_s - day.training.due_s) @ day.training.weight_eur_per_s
    assert bill["job_penalty_eur"] == pytest.approx(late)
    assert bill["total_eur"] == pytest.approx(bill["energy_eur"] + late + bill["batch_penalty_eur"])
    check_holdings(day.nodes.cluster, holdings_of(day, happened))
    assert power_of_nodes(day.nodes).gpu_full_w.tolist() == [70, 300, 250, 149, 400]


def test_the_bound_is_below_that_of_the_same_tasks_at_the_same_times():
    day, _, happened = small()
    problem, schedule = whole_day(day, happened)
    _, asleep = energy_bounds(problem, schedule, floors_of(problem, day.nodes.power, ASLEEP_W), (0.0, HORIZON_S))
    assert bound_of_day(day)["energy_kwh"] < asleep < bill_of_day(day, happened)["energy_kwh"]


def now(day, free, places=None, jobs=(0, 1, 2)) -> Now:
    return Now(0.0, np.array(jobs), day.training.steps.copy(), np.array(free), places or {})


def test_plain_training_keeps_who_runs_and_takes_the_earliest_due_date_first():
    day = small()[0]
    training = day.training._replace(gpus=np.ones(len(day.training.steps), int))
    due = training.due_s.copy()
    due[:3] = [30.0, 20.0, 10.0]
    day = replace(day, training=training._replace(due_s=due))
    assert decide_plainly(day, now(day, [0, 1, 0, 0, 0])) == {2: {1: 1}}
    assert decide_plainly(day, now(day, [0, 1, 0, 0, 0], {0: {1: 1}})) == {0: {1: 1}}
    assert decide_plainly(day, now(day, [0, 1, 0, 0, 0], {0: {2: 1}})) == {2: {1: 1}}
    assert decide_plainly(day, now(day, [0, 0, 0, 0, 0])) == {}


@pytest.mark.parametrize("name", TRAINERS)
def test_whoever_decides_keeps_to_the_open_gpus(name):
    day = small()[0]
    jobs = np.arange(len(day.training.steps))
    places = TRAINERS[name](day, now(day, [0, 3, 1, 2, 0], {0: {1: 2}, 1: {3: 4}}, jobs))
    taken = np.zeros(5, int)
    for place in places.values():
        assert sum(place.values()) in COUNTS
        for node, gpus in place.items():
            taken[node] += gpus
    assert (taken <= [0, 3, 1, 2, 0]).all() and taken.sum() > 0
    assert TRAINERS[name](day, now(day, [0] * 5)) == {}


def test_who_keeps_number_and_type_keeps_node_and_gpus():
    day = small()[0]
    types = np.zeros(5, np.int64)
    here = now(day, [0, 2, 2, 0, 0], {0: {2: 1}, 1: {1: 2}})
    assert settled(day, here, types, {0: {1: 1}, 1: {1: 1}}) == {0: {2: 1}, 1: {2: 1}}
    is_whole = np.array([[False, True, True, True]])
    assert seats_of({0: {0: 1}, 1: {0: 2}}, {0: {0: 4}, 1: {0: 3}}, is_whole) == {0: {0: 4}, 1: {0: 10}}
    with pytest.raises(ValueError, match="2 GPUs are asked for"):
        seats_of({0: {0: 2}}, {}, np.array([[True, False]]))


def test_a_day_that_does_not_end_is_an_error():
    day, rooms, _ = small()
    with pytest.raises(ValueError, match="jobs are not done"):
        train(day, rooms[False], lambda day, now: {})


def test_the_chart_says_which_idea_saves_most():
    drawn = worth_chart(frame()).to_dict()
    words = "[A-Za-z+ ]+"
    assert drawn["vconcat"]
    assert re.fullmatch(f"{words} saves most money, {words} most energy, {words} most time", drawn["title"])
