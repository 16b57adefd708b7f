"""The event-driven replay: equal to brute force on random event lists, and to an inflation without departures."""
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sched_lab.cluster import Cluster, default_cluster
from sched_lab.fleet.replay import case as case_module
from sched_lab.fleet.replay.case import case_of, change, desk_of, expect_again, node_milliwatts, parts_of_jobs
from sched_lab.fleet.replay.events import COMPARED, replay, simulate
from sched_lab.fleet.replay.problem import Problem, Schedule, recorded
from sched_lab.fleet.replay.rules import check_promises, check_schedule, violations
from sched_lab.lab.frames import InputError
from sched_lab.online.inflation import inflate
from sched_lab.online.model import PowerSettings
from sched_lab.traces import Arrivals, Tasks, default_tasks
from tests.fleet.plain_replay import replay_plain
from tests.fleet.problems import in_jobs, problem_like, tasks_like, texts, timed

LISTS = 8  # event lists in one example, one after another: each begins with what the one before has left
APART_S = 1000.0
pytestmark = pytest.mark.usefixtures("python_itself")
POLICIES = ["joint", "stay", "random", "gpu-clustering", "fgd@0.4@random@0.7@pwr-fgd:0.2"]
SOME = settings(derandomize=True, max_examples=24, suppress_health_check=list(HealthCheck))


def first_of(job: np.ndarray) -> np.ndarray:
    """First task of the job of each."""
    return parts_of_jobs(job, len(job))[0]


@st.composite
def problems(draw) -> Problem:
    """Draw a few nodes in two groups, and lists of 10 tasks far apart; in the last list some never end."""
    node = st.tuples(st.sampled_from([8, 32]), st.sampled_from([2, 16]), st.integers(0, 3),
                     st.sampled_from(["T4", "G2"]), st.sampled_from(["g0", "g1"]))
    cpu, memory, gpus, model, group = zip(*draw(st.lists(node, min_size=1, max_size=4)), strict=True)
    cluster = Cluster(texts(f"n{n}" for n in range(len(cpu))), np.array(cpu) * 1000, np.array(memory) * 1024,
                      np.array(gpus), texts(m if g else "" for m, g in zip(model, gpus, strict=True)),
                      texts([""] * len(cpu)))
    gpu = st.one_of(st.just((0, 0)), st.tuples(st.just(1), st.sampled_from([250, 500, 999])),
                    st.tuples(st.sampled_from([1, 2]), st.just(1000)))
    asked = draw(st.lists(st.tuples(st.sampled_from([0, 500, 4000, 8000]), st.sampled_from([0, 1, 3, 8]), gpu,
                                    st.sampled_from(["", "", "T4"]), st.sampled_from(["", "", "g0", "g0|g1"])),
                          min_size=1, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = 10 * LISTS
    rows = rng.integers(len(asked), size=count)
    cpu, memory, demand, spec, groups = zip(*(asked[row] for row in rows), strict=True)
    num, milli = (np.array(column) for column in zip(*demand, strict=True))
    tasks = Tasks(texts(f"t{n}" for n in range(count)), np.array(cpu), np.array(memory) * 1024, num, milli,
                  texts(s if n else "" for s, n in zip(spec, num, strict=True)), texts(groups))
    job = np.arange(count) // draw(st.sampled_from([1, 2, 3])) if draw(st.booleans()) else np.arange(count)
    job = np.where(rng.random(count) < 0.5, job, count + np.arange(count))
    submit = APART_S * (np.arange(count) // 10) + rng.integers(0, draw(st.sampled_from([1, 10, 60])), count)
    duration = rng.choice([0, 1, 3, 8, 20.5, 40], size=count)
    is_last = np.arange(count) >= count - 10
    duration[is_last & (rng.random(count) < 0.3)] = np.inf
    priority = rng.integers(0, draw(st.sampled_from([1, 3])), count)
    limit = draw(st.lists(st.sampled_from([("", 0), ("x", 1), ("x", 3), ("y", 2)]), min_size=4, max_size=4))
    app, most = zip(*(limit[row] for row in rng.integers(4, size=count)), strict=True)
    walltime = duration + rng.choice([0, 0, 2, 8, 30], size=count) if draw(st.booleans()) else None
    like = first_of(job)  # parts of a job ask for the same, and come when they come
    return problem_like(cluster, replace(tasks.take(like), name=tasks.name), submit, duration[like],
                      priority=priority[like], group=texts(group), app=texts(app)[like],
                      most_per_node=np.array(most)[like], walltime_s=None if walltime is None else walltime[like],
                      job=job if len(np.unique(job)) < count else None)


def case(problem: Problem, policy: str, cap_w: float | None = None):
    return case_of(problem, policy, 0, None, PowerSettings(), cap_w)


def assert_equal(one: Schedule, other: Schedule) -> None:
    for column, values, others in zip(Schedule._fields[:4], one, other, strict=False):
        np.testing.assert_array_equal(values, others, err_msg=column)


@pytest.mark.parametrize("policy", POLICIES)
@given(problem=problems(), backfill=st.sampled_from(COMPARED))
@SOME
def test_the_engine_does_what_brute_force_does(policy, problem, backfill):
    """In 5 x 24 x 8 lists of events; compiled, it does the same (`test_compare`)."""
    schedule = replay(problem, policy, backfill=backfill)
    assert_equal(schedule, replay_plain(case(problem, policy), backfill))


def test_who_outlives_what_was_expected_is_expected_to_stay_as_long_again():
    """On node 0, GPU 0 until 10 and GPU 1 until 4, by what is expected; then the second one runs on."""
    problem = timed([(0, 99, 1, 1000), (2, 99, 1, 1000), (6, 9, 1, 1000)], expects_s=np.array([10.0, 2.0, 30.0]))
    ready = case(problem, "stay")
    desk, schedule = desk_of(ready), ready.schedule
    for task, begin_s in ((0, 0.0), (1, 2.0)):
        schedule.node[task], schedule.gpu_mask[task], schedule.start_s[task] = 0, 1 << task, begin_s
        change(desk, ready.timed, task, schedule, 1, begin_s)
    stays = desk.world.stays
    assert (stays.node_until_s[0], *stays.gpu_until_s[0, :2]) == (10, 10, 4)
    expect_again(desk, schedule, 7.0)
    assert (stays.node_until_s[0], *stays.gpu_until_s[0, :2]) == (12, 10, 12)
    change(desk, ready.timed, 1, schedule, -1, 8.0)
    assert (stays.node_until_s[0], *stays.gpu_until_s[0, :2]) == (10, 10, -np.inf)


def of_four_gpus(rows, specs, **more) -> Problem:
    """Tasks (submit, duration, GPUs) for these models, on a G2 node and a T4 node with four GPUs each."""
    submit, duration, num = zip(*rows, strict=True)
    nodes = Cluster(texts("ab"), np.array([8000] * 2), np.array([8192] * 2), np.array([4, 4]), texts(["G2", "T4"]),
                    texts(["", ""]))
    return problem_like(nodes, replace(tasks_like(num, [1000] * len(num)), gpu_spec=texts(specs)), submit, duration,
                        **more)


def test_a_task_goes_beside_the_one_that_stays_longer():
    """On a until 40 and on b until 20: one for 30 s goes to a, though both have one GPU left."""
    rows = [(0, 40, 3), (0, 20, 3), (1, 30, 1)]
    assert replay(of_four_gpus(rows, ["G2", "T4", ""]), "stay").node.tolist() == [0, 1, 0]
    rows = [(0, 20, 3), (0, 40, 3), (1, 30, 1)]
    assert replay(of_four_gpus(rows, ["G2", "T4", ""]), "stay").node.tolist() == [0, 1, 1]


def test_a_part_knows_how_long_the_part_before_it_stays():
    """On a until 40, on b until 20; of a job for 50 s one part can only go to b, and so the other does."""
    problem = of_four_gpus([(0, 40, 3), (0, 20, 2), (1, 50, 1), (1, 50, 1)], ["G2", "T4", "T4", ""],
                           job=np.array([0, 1, 2, 2]))
    assert replay(problem, "stay").node.tolist() == [0, 1, 1, 1]
    assert replay(replace(problem, job=None), "stay").node.tolist() == [0, 1, 1, 1]


def idle_w(problem: Problem) -> float:
    """Return what the nodes draw without tasks."""
    return float(node_milliwatts(case(problem, "fgd").world).sum() / 1000)


CROWDED = [(0, 10, 1), (1, 7, 1), (3, 9, 1), (4, 4, 4), (5, 6, 4), (5, 3, 2), (7, 11, 1)]    # from, for, GPUs


@pytest.mark.parametrize("backfill", COMPARED)
def test_what_is_booked_for_later_is_in_the_way_of_what_starts_before(backfill):
    problem = timed([(submit_s, length_s, gpus, 1000) for submit_s, length_s, gpus in CROWDED])
    assert_equal(replay(problem, "fgd", backfill=backfill), replay_plain(case(problem, "fgd"), backfill))


@pytest.mark.parametrize("policy", ["pwr-fgd:0.1", "random", "bid"])
@given(problem=problems(), backfill=st.sampled_from(COMPARED[:2]), spare_w=st.sampled_from([0, 60, 150, 400]))
@SOME
def test_under_a_cap_it_does_what_brute_force_does(policy, problem, backfill, spare_w):
    cap_w = idle_w(problem) + spare_w
    schedule = replay(problem, policy, backfill=backfill, cap_w=cap_w)
    plain = replay_plain(case(problem, policy, cap_w), backfill)
    assert_equal(schedule, plain)


@pytest.mark.parametrize(("policy", "backfill"), [("joint", "conservative"), ("bid", "first-fit")])
def test_without_departures_it_is_an_inflation(policy, backfill):
    """Event by event: what does not fit waits for ever, and others start. Chapter 64 has more policies."""
    cluster = default_cluster().take(np.arange(0, 1213, 60))
    rows = np.random.default_rng(3).integers(len(default_tasks()), size=300)
    named = replace(default_tasks().take(rows), name=texts(f"t{n}" for n in range(len(rows))))
    run = inflate(cluster, named, policy, arrivals=Arrivals(np.arange(len(rows)), np.arange(len(cluster))))
    never = np.full(len(rows), np.inf)
    schedule = replay(problem_like(cluster, named, np.arange(len(rows)), never), policy, backfill=backfill)
    np.testing.assert_array_equal(schedule.node, run.placements.node)
    np.testing.assert_array_equal(schedule.gpu_mask, run.placements.gpu_mask)
    assert (schedule.node < 0).sum() > 0


# two GPUs for 10 s, then one for 5; then two, which must wait; one that could be done before; one short one
LINE = [(0, 10, 2, 1000), (1, 5, 1, 1000), (2, 10, 2, 1000), (3, 20, 1, 1000), (4, 3, 1, 1000)]


@pytest.mark.parametrize(("backfill", "starts"), [
    ("none", [0, 1, 10, 10, 20]),            # t3 waits behind t2, though b is free from 6 on
    ("first-fit", [0, 1, 10, 6, 20]),        # t3 takes b at 6; t4 finds no gap before 20
    ("easy", [0, 1, 10, 6, 20]),
    ("conservative", [0, 1, 10, 6, 20])])
def test_a_queue_by_hand(backfill, starts):
    schedule = replay(timed(LINE), backfill=backfill)
    assert schedule.start_s.tolist() == starts


def test_first_fit_may_starve_and_conservative_may_not():
    """Shares keep one GPU or the other of a busy, so the task for both GPUs waits for their last."""
    rows = [(0, 10, 1, 1000), (0, 10, 1, 1000), (1, 5, 2, 1000), *((t, 8, 1, 1000) for t in range(3, 60, 3))]
    rows[1] = (0, 13, 1, 1000)
    problem = timed(rows)
    waits = {backfill: replay(problem, backfill=backfill).start_s[2] - 1 for backfill in COMPARED}
    assert waits["none"] == waits["easy"] == waits["conservative"] < waits["first-fit"]


# both GPUs of a; then the one of b; t2 must wait for a; t3 and t4 could do their work before it starts
ASKED = [(0, 10, 2, 1000), (0, 6, 1, 1000), (1, 10, 2, 1000), (2, 4, 1, 1000), (3, 3, 1, 1000)]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@pytest.mark.parametrize("walltime", [None, [40, 6, 10, 4, 3], [40, 30, 20, 9, 9]])
def test_who_ends_early_makes_room_for_those_who_wait(walltime, backfill):
    """However long t0 and t1 asked for a and b, t2 starts on a at 10 s, and t3 on b at 6 s."""
    problem = timed(ASKED, walltime_s=None if walltime is None else np.array(walltime, float))
    assert replay(problem, backfill=backfill).start_s.tolist() == [0, 0, 10, 6, 10]


def test_a_long_walltime_keeps_a_short_task_from_passing():
    """t3 runs for 4 s from 2 s on, which would do; it asked for 20 s, and t2 has both GPUs from 10 s on."""
    rows = [(0, 10, 1, 1000), (1, 10, 2, 1000), (2, 4, 1, 1000)]
    problem = replace(timed(rows), tasks=replace(timed(rows).tasks, gpu_spec=texts(["T4"] * 3)))
    for backfill in ("easy", "conservative"):
        assert replay(problem, backfill=backfill).start_s.tolist() == [0, 10, 2]
        late = replace(problem, walltime_s=np.array([10.0, 10, 20]))
        assert replay(late, backfill=backfill).start_s.tolist() == [0, 10, 20]
    assert replay(late, backfill="first-fit").start_s.tolist() == [0, 10, 2]


def test_the_validator_knows_walltimes_and_promises():
    rows = [(0, 10, 1, 1000), (1, 10, 2, 1000), (2, 4, 1, 1000)]
    problem = replace(timed(rows), tasks=replace(timed(rows).tasks, gpu_spec=texts(["T4"] * 3)),
                      walltime_s=np.array([10.0, 10, 20]))
    schedule = replay(problem, backfill="easy")
    passing = changed(changed(schedule, 2, start_s=2, end_s=6, gpu_mask=2), 1, start_s=11, end_s=21)
    with pytest.raises(ValueError, match="queue: task t1 is first, and waits at 10.0 s"):
        check_schedule(problem, passing, backfill="easy")
    check_promises(problem, passing, np.array([np.inf, 11, np.inf]))
    with pytest.raises(ValueError, match="task t1 was promised a start at 10.0 s, and starts at 11.0 s"):
        check_promises(problem, passing, np.array([np.inf, 10, np.inf]))
    with pytest.raises(ValueError, match="task t0 runs for longer than its walltime"):
        check_schedule(replace(problem, walltime_s=np.array([9.0, 10, 20])), schedule)


def limited(most, rows, app="x", **more) -> Problem:
    """Tasks of one application, with these limits, on nodes a and b."""
    return timed(rows, app=texts([app] * len(rows)), most_per_node=np.array(most), **more)


@pytest.mark.parametrize("backfill", COMPARED)
def test_an_application_spreads_over_nodes_and_waits(backfill):
    """One to a node: the third waits for the first to end, and one without a limit does not mind."""
    rows = [(0, 10, 0, 0), (0, 20, 0, 0), (1, 5, 0, 0), (2, 5, 0, 0)]
    problem = limited([1, 1, 1, 0], rows)
    schedule = replay(problem, backfill=backfill)
    assert sorted(schedule.node[:2]) == [0, 1] and schedule.start_s[:3].tolist() == [0, 0, 10]
    assert schedule.start_s[3] == (10 if backfill == "none" else 2)


@pytest.mark.parametrize("backfill", COMPARED)
def test_a_newcomer_keeps_the_limits_of_those_who_are_there(backfill):
    """Two of limit 1 are alone on their nodes; one of limit 3 waits for the first of them, and then shares nothing."""
    problem = limited([1, 1, 3, 3], [(0, 10, 0, 0), (0, 20, 0, 0), (1, 15, 0, 0), (1, 4, 0, 0)])
    schedule = replay(problem, backfill=backfill)
    assert schedule.start_s.tolist() == [0, 0, 10, 10] and schedule.node[2] == schedule.node[3] == schedule.node[0]


def test_the_validator_knows_limits():
    problem = limited([1, 3, 0], [(0, 10, 0, 0), (4, 3, 0, 0), (0, 5, 0, 0)])
    one = Schedule(np.array([0, 0, 0]), np.zeros(3, int), np.array([0.0, 4, 0]), np.array([10.0, 7, 5]))
    with pytest.raises(ValueError, match=r"Cond\. 7 \(instances\): node a holds more than 1 tasks of x at 4.0 s, and"):
        check_schedule(problem, one)
    check_schedule(replace(problem, most_per_node=np.array([2, 3, 0])), one)
    check_schedule(replace(problem, app=texts(["x", "y", ""])), one)
    check_schedule(problem, changed(one, 1, node=1))
    with pytest.raises(ValueError, match="queue: task t1 waits at 4.0 s, and fits on node b"):
        check_schedule(problem, changed(one, 1, start_s=10, end_s=13), backfill="none")


def test_a_replay_from_the_middle_counts_those_who_run():
    """At 2 s t0 has one node for itself, and t1 the other; t2 may begin when t0 ends."""
    nan = np.nan
    problem = limited([1, 1, 1], [(0, 10, 0, 0), (0, 20, 0, 0), (1, 5, 0, 0)], node=np.array([1, 0, -1]),
                      start_s=np.array([0, 0, nan]))
    for backfill in COMPARED:
        schedule = replay(problem, backfill=backfill, at_s=2)
        assert schedule.start_s[2] == 10 and schedule.node[2] == 1
    with pytest.raises(InputError, match="more tasks of an application run on a node"):
        replay(replace(problem, node=np.array([1, 1, -1])), at_s=2)


# a T4 in use adds 60 W, a G2 more; CPUs of 1 vCPU add 0.. 105 W once for each package in use
WATTS = PowerSettings(gpu_power_w={"T4": (10, 70), "G2": (30, 150)}, cpu_power_w={"": (0, 0, 4)})


def test_a_task_waits_for_watts():
    """Three GPUs: 10 + 10 + 30 W idle. With 110 W only one T4 can be busy, with 170 W both, with 290 W all."""
    rows = [(0, 10, 1, 1000), (0, 20, 1, 1000), (0, 5, 1, 1000)]
    problem = replace(timed(rows), tasks=replace(timed(rows).tasks, gpu_spec=texts(["T4", "T4", "G2"])))
    for cap_w, starts in ((290, [0, 0, 0]), (289, [0, 0, 10]), (170, [0, 0, 20]), (110, [0, 10, None])):
        for backfill in COMPARED[:2]:
            schedule = replay(problem, backfill=backfill, cap_w=cap_w, power=WATTS)
            assert schedule.start_s.tolist()[:2] == starts[:2]
            assert starts[2] is None and np.isnan(schedule.start_s[2]) or schedule.start_s[2] == starts[2]


@pytest.mark.parametrize("cap_w", [170, 170.0, None])
def test_a_cap_has_one_type_whatever_it_is(cap_w):
    """Else the engine would be compiled once more for it."""
    assert type(case(timed([(0, 10, 1, 1000)]), "fgd", cap_w).timed.cap_mw) is float


def test_who_needs_few_watts_may_go_before_who_needs_many():
    problem = timed([(0, 10, 1, 1000), (1, 5, 1, 1000), (2, 5, 0, 0)])
    problem = replace(problem, tasks=replace(problem.tasks, gpu_spec=texts(["T4", "G2", ""])))
    starts = [replay(problem, backfill=backfill, cap_w=170, power=WATTS).start_s.tolist() for backfill in COMPARED[:2]]
    assert starts == [[0, 10, 10], [0, 10, 2]]


def test_the_validator_knows_the_cap():
    problem = timed([(0, 10, 1, 1000), (4, 5, 1, 1000)])
    schedule = replay(problem, power=WATTS)
    check_schedule(problem, schedule, backfill="none", power=WATTS, cap_w=230)
    with pytest.raises(ValueError, match="cap: 170 W of 169 W from 4.0 s on, with task t1"):
        check_schedule(problem, schedule, backfill="none", power=WATTS, cap_w=169)
    late = replay(problem, power=WATTS, cap_w=169)
    assert late.start_s.tolist() == [0, 10]
    overtaken = replace(problem, submit_s=np.array([4.0, 0]))
    with pytest.raises(ValueError, match="queue: task t1 waits at 4.0 s, and one behind it starts"):
        late = changed(late, 0, start_s=4, end_s=14, gpu_mask=2)
        check_schedule(overtaken, late, backfill="none", power=WATTS, cap_w=169)


def test_what_runs_already_may_draw_more_than_the_cap():
    problem = timed([(0, 10, 2, 1000), (1, 5, 1, 250)], node=np.array([0, -1]), gpu_mask=np.array([3, 0]),
                    start_s=np.array([0, np.nan]))
    problem = replace(problem, tasks=replace(problem.tasks, gpu_spec=texts(["T4", "T4"])))
    schedule = replay(problem, at_s=2, power=WATTS, cap_w=110)
    assert schedule.start_s.tolist() == [0, 10]


@pytest.mark.parametrize(("options", "words"), [
    ({"backfill": "conservative", "cap_w": 500}, "do not go together"), ({"cap_w": 49}, "draws 50 W without any task"),
    ({"cap_w": np.nan}, "draws 50 W"), ({"backfill": "eager"}, "there is no backfill 'eager'"),
    ({"policy": "fgdx"}, "fgdx"),
    ({"policy": "bid:300:1", "backfill": "conservative"}, "'bid:300:1' and conservative backfill")])
def test_what_cannot_be_asked(options, words):
    with pytest.raises(InputError, match=words):
        replay(timed(LINE), power=WATTS, **options)


def test_urgent_tasks_go_first():
    rows = [(0, 10, 2, 1000), (0, 20, 1, 1000), (1, 10, 1, 1000), (2, 10, 2, 1000)]
    for backfill in COMPARED:
        assert replay(timed(rows), backfill=backfill).start_s.tolist() == [0, 0, 10, 20]
        urgent = replay(timed(rows, priority=np.array([0, 0, 0, 1])), backfill=backfill)
        assert urgent.start_s.tolist() == [0, 0, 20, 10]


def test_an_urgent_task_is_tried_though_the_first_of_the_queue_waits():
    """t1 waits for the G2 node; t2, which goes before it, wants the T4 node, which is idle."""
    problem = of_four_gpus([(0, 10, 4), (1, 10, 2), (2, 5, 1)], ["G2", "G2", "T4"], priority=np.array([0, 0, 1]))
    for backfill in COMPARED:
        assert replay(problem, backfill=backfill).start_s.tolist() == [0, 10, 2]


def changed(schedule: Schedule, task: int, **values) -> Schedule:
    copy = Schedule(*(column.copy() for column in schedule[:4]))
    for name, value in values.items():
        getattr(copy, name)[task] = value
    return copy


@pytest.mark.parametrize(("task", "values", "sentence"), [
    (4, {"node": 0, "gpu_mask": 1, "start_s": 4, "end_s": 7}, r"Cond\. 3 \(GPU\): node a holds 2000 of 1000 from 4"),
    (1, {"start_s": 0.5, "end_s": 5.5}, "time: task t1 starts before it is submitted"),
    (1, {"end_s": 7}, "time: task t1 does not run for its duration"),
    (1, {"start_s": np.nan}, "time: task t1 has a node without times"),
    (2, {"gpu_mask": 1}, r"Cond\. 6 \(GPUs\): task t2 is on node a"),
    (1, {"gpu_mask": 2}, r"Cond\. 6 \(GPUs\): task t1 is on node b"),
    (3, {"start_s": 6, "end_s": 26}, "queue: task t2 waits at 6.0 s, and one behind it starts"),
    (4, {"start_s": 40, "end_s": 43}, "queue: task t4 waits at 20.0 s, and fits on node a"),
    (4, {"node": -1, "gpu_mask": 0, "start_s": np.nan, "end_s": np.nan},
     "queue: task t4 waits at 20.0 s, and fits on node a")])
def test_the_validator_says_what_is_wrong(task, values, sentence):
    problem = timed(LINE)
    schedule = replay(problem)
    check_schedule(problem, schedule, backfill="none")
    with pytest.raises(ValueError, match=sentence):
        check_schedule(problem, changed(schedule, task, **values), backfill="none")


def test_the_validator_knows_models_groups_cpu_and_memory():
    problem = timed(LINE)
    schedule = replay(problem)
    for column, value, sentence in (
            ("cpu_spec", "g9", "Cond. 4"), ("gpu_spec", "A100", "Cond. 5"), ("cpu_milli", 9000, "Cond. 1"),
            ("memory_mib", 9000, "Cond. 2")):
        asked = getattr(problem.tasks, column).copy()
        asked[0] = value
        with pytest.raises(ValueError, match=sentence):
            check_schedule(replace(problem, tasks=replace(problem.tasks, **{column: asked})), schedule)


@pytest.mark.parametrize("backfill", ["first-fit", "conservative"])
def test_nobody_who_fits_is_left_over(backfill):
    problem = timed(LINE)
    left_out = changed(replay(problem, backfill=backfill), 4, node=-1, gpu_mask=0, start_s=np.nan, end_s=np.nan)
    with pytest.raises(ValueError, match="t4 never starts, and fits on node a in the end"):
        check_schedule(problem, left_out, backfill=backfill)


def test_larger_than_any_node_is_refused_at_once():
    problem = timed([(0, 10, 2, 1000), (1, 10, 3, 1000), (2, 1, 1, 1000)])
    schedule = replay(problem)
    assert schedule.node.tolist() == [0, -1, 1]
    assert np.isnan(schedule.start_s[1])


@pytest.mark.parametrize("backfill", COMPARED)
def test_a_replay_from_the_middle(backfill):
    """At 4 s t0 and t1 run where they did by the record, t5 has ended, and t2 has waited since 2 s."""
    rows = [*LINE[:4], (4, 3, 1, 1000), (0, 2, 1, 1000)]
    nan = np.nan
    problem = timed(rows, node=np.array([0, 1, -1, -1, -1, 1]), gpu_mask=np.array([3, 1, 0, 0, 0, 1]),
                    start_s=np.array([0, 2.0, nan, nan, nan, 0]))
    schedule = replay(problem, backfill=backfill, at_s=4)
    assert schedule.node[[0, 1, 5]].tolist() == [0, 1, -1]
    assert schedule.start_s[[0, 1, 2]].tolist() == [0, 2, 10]
    assert (schedule.start_s[3] == 7) == (backfill != "none")
    assert_equal(schedule, replay_plain(case_of(problem, "fgd", 0, 4, PowerSettings()), backfill))
    for task, values, sentence in ((1, {"gpu_mask": 0}, "Cond. 6"), (5, {"node": 1, "gpu_mask": 1, "start_s": 0,
                                                                        "end_s": 2}, "has ended already"),
                                   (1, {"start_s": 1, "end_s": 6}, "was moved")):
        with pytest.raises(ValueError, match=sentence):
            check_schedule(problem, changed(schedule, task, **values), backfill=backfill, at_s=4)


def test_a_record_is_checked_like_a_schedule():
    problem = timed(LINE[:2], node=np.array([0, 0]), gpu_mask=np.array([3, 1]), start_s=np.array([0.0, 1]))
    assert [sentence[:7] for sentence in violations(problem, recorded(problem))] == ["Cond. 3"]


def test_the_plain_engine_takes_over_where_the_index_has_no_room(monkeypatch):
    cluster = default_cluster().take(np.arange(0, 1213, 30))
    rows = np.random.default_rng(0).integers(8000, size=400)
    tasks = default_tasks().take(rows)
    rng = np.random.default_rng(1)
    problem = problem_like(cluster, tasks, np.sort(rng.integers(0, 900, 400)), rng.integers(1, 900, 400))
    wide = simulate(case(problem, "pwr-fgd:0.1"), "first-fit")
    monkeypatch.setattr(case_module, "MAX_GROUPS", 2)
    assert_equal(wide, simulate(case(problem, "pwr-fgd:0.1"), "first-fit"))


@pytest.mark.parametrize("backfill", COMPARED)
def test_the_parts_of_a_job_start_together(backfill):
    """t1 and t2 want a GPU each, and one is free until t0 ends; t3 is short, and may pass."""
    problem = in_jobs([0, 1, 1, 2], [(0, 10, 2, 1000), (1, 5, 1, 1000), (1, 8, 1, 1000), (2, 3, 1, 1000)])
    schedule = replay(problem, backfill=backfill)
    assert schedule.start_s[[1, 2]].tolist() == [10, 10]
    assert schedule.start_s[3] == (10 if backfill == "none" else 2)


@pytest.mark.parametrize("backfill", COMPARED)
def test_a_job_is_tried_when_the_node_of_any_of_its_parts_is_left(backfill):
    """The G2 node has room for one part all the time; only the other one waits for the T4 node."""
    problem = of_four_gpus([(0, 10, 4), (1, 5, 1), (1, 5, 1)], ["T4", "G2", "T4"], job=np.array([0, 1, 1]))
    assert replay(problem, backfill=backfill).start_s.tolist() == [0, 10, 10]


@pytest.mark.parametrize("backfill", COMPARED)
def test_a_job_that_is_too_large_together_blocks_nobody(backfill):
    """Four GPUs in parts of one, and there are three."""
    problem = in_jobs([0, 0, 0, 0, 1], [*[(0, 10, 1, 1000)] * 4, (1, 5, 1, 1000)])
    schedule = replay(problem, backfill=backfill)
    assert schedule.node[:4].tolist() == [-1] * 4 and schedule.start_s[4] == 1


@pytest.mark.parametrize("backfill", COMPARED)
def test_a_job_never_starts_beside_what_never_ends(backfill):
    """Of three GPUs one is left, at any time, for a job of two parts; t3 may pass it, but in order."""
    problem = in_jobs([0, 1, 1, 2], [(0, np.inf, 2, 1000), (1, 5, 1, 1000), (1, 5, 1, 1000), (2, 5, 1, 1000)])
    schedule = replay(problem, backfill=backfill)
    assert schedule.node[[1, 2]].tolist() == [-1, -1]
    assert (schedule.node[3] >= 0) == (backfill != "none")
    assert_equal(schedule, replay_plain(case(problem, "fgd"), backfill))


def test_the_validator_knows_jobs():
    problem = in_jobs([0, 1, 1, 2], [(0, 10, 2, 1000), (1, 5, 1, 1000), (1, 8, 1, 1000), (2, 3, 1, 1000)])
    schedule = replay(problem)
    for rule in COMPARED:
        with pytest.raises(ValueError, match="job: task t2 does not start with t1, a part of the same job, at 11"):
            check_schedule(problem, changed(schedule, 2, start_s=11, end_s=19), backfill=rule)
    late = changed(changed(schedule, 1, start_s=12, end_s=17), 2, start_s=12, end_s=20)
    late = changed(late, 3, start_s=12, end_s=15)
    with pytest.raises(ValueError, match="queue: task t1 waits at 10.0 s, and fits on node"):
        check_schedule(problem, late, backfill="none")
    with pytest.raises(ValueError, match="queue: task t1 is first, and waits at 10.0 s"):
        check_schedule(problem, late, backfill="easy")
