"""What the widgets of the book compute: functions of the package, which `build_widgets.py` compiles for a page."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sched_lab.andreas.greedy import MODULUS, Search, SearchOptions, assign_in_order, more_rounds, pressure_s
from sched_lab.andreas.instances import toy_instance
from sched_lab.andreas.model import Fleet
from sched_lab.andreas.model import Jobs as DueJobs
from sched_lab.andreas.proxy import code_objective, paper_objective
from sched_lab.andreas.rules import OpenNodes, assign_waiting, open_lists
from sched_lab.cluster import WHOLE_GPU_MILLI, Cluster
from sched_lab.far.allocations import cheapest_size, raise_longest
from sched_lab.far.bounds import charges_of, least_work, start_loss
from sched_lab.far.mig import Mig, Tree, mig_of
from sched_lab.far.refine import Lists, _refine
from sched_lab.far.repartition import in_a_row, repartition, run_events
from sched_lab.hadar.model import State as HadarState
from sched_lab.hadar.model import nothing_runs, toy_workload
from sched_lab.hadar.primal_dual import NO_TOLL, Hadar, Place, Terms, best_place, buckets_of, node_prices, take
from sched_lab.lab.arrays import Floats, Integers
from sched_lab.lab.jit import njit
from sched_lab.online.fgd import fgd
from sched_lab.online.inflation import (
    Memory,
    StagedWeights,
    add_points,
    choose,
    empty_memory,
    node_share,
    outdated,
    stage_now,
    weighing_of,
)
from sched_lab.online.inflation import place as place_task
from sched_lab.online.joint import joint_early, joint_late, joint_middle
from sched_lab.online.model import PowerSettings, World, world_of
from sched_lab.online.policies import policy_of
from sched_lab.online.pwr import pwr
from sched_lab.traces import TaskClasses, default_tasks, task_classes


class Rules(NamedTuple):
    """Policies of the widget, by the scores of fgd, pwr and joint.

    Parameters
    ----------
    weights : (policies, 3) of the scores
    normalise : (3,) how each is spread (`Score`)
    staged : when the stages of joint begin
    capacity : (3,) milli-GPU, milli-vCPU and MiB of the cluster
    """

    weights: Integers
    normalise: Integers
    staged: StagedWeights
    capacity: Integers


class Opinion(NamedTuple):
    """What policies think of one task.

    Parameters
    ----------
    node, gpu_mask : (policies,) the node that each chooses, -1 for none, and the GPUs there
    points : (3, nodes) of each score, as they are weighed
    stage : of joint
    """

    node: Integers
    gpu_mask: Integers
    points: Integers
    stage: int


@njit(cache=True)
def stage_of(world: World, rules: Rules) -> int:
    """Stage of the joint policy, from what is in use."""
    in_use = rules.capacity.copy()
    in_use[0] -= world.state.gpu_left_milli.sum()
    in_use[1] -= world.state.cpu_left_milli.sum()
    in_use[2] -= world.state.memory_left_mib.sum()
    return stage_now(rules.staged, int(np.int64(0)), in_use)


@njit(cache=True)
def score_all(world: World, memory: Memory, task: int, stage: int) -> int:
    """Score a task by fgd, pwr and joint on every node that can hold it; row in the memory."""
    row, num = outdated(world, memory, task)
    nodes = memory.stale[:num]
    fgd(world, task, nodes, memory.score[0, row], memory.gpu_mask[0, row])
    pwr(world, task, nodes, memory.score[1, row], memory.gpu_mask[1, row])
    if stage == 0:
        joint_early(world, task, nodes, memory.score[2, row], memory.gpu_mask[2, row])
    elif stage == 1:
        joint_middle(world, task, nodes, memory.score[2, row], memory.gpu_mask[2, row])
    else:
        joint_late(world, task, nodes, memory.score[2, row], memory.gpu_mask[2, row])
    return row


@njit(cache=True)
def weigh(world: World, memory: Memory, task: int, memory_mib: int, rules: Rules) -> Opinion:
    """Ask every policy about a task; the memory must not know any node yet.

    Parameters
    ----------
    world, memory : the cluster, and room for scores, which can be read there afterwards
    task, memory_mib : class of the task, and its memory
    rules : the policies
    """
    stage = stage_of(world, rules)
    row = score_all(world, memory, task, stage)
    has_memory = world.state.memory_left_mib >= memory_mib
    can_host = memory.is_feasible[row] & has_memory
    one = int(np.int64(1))  # a literal would be compiled for once more
    points = np.zeros((len(rules.normalise), len(can_host)), np.int64)
    for part in range(len(points)):
        add_points(points[part], memory.score[part, row], can_host, one, rules.normalise[part])
    node = np.empty(len(rules.weights), np.int64)
    gpu_mask = np.zeros(len(node), np.int64)
    for policy in range(len(node)):
        weights = rules.weights[policy]
        node[policy] = choose(memory, row, has_memory, weights, rules.normalise, one)
        if node[policy] >= 0:
            gpu_mask[policy] = memory.gpu_mask[np.argmax(weights), row, node[policy]]
    return Opinion(node, gpu_mask, points, stage)


@njit(cache=True)
def put(world: World, task: int, memory_mib: int, node: int, gpu_mask: int) -> Floats:
    """Place a task, unless the node is -1; milliwatts of CPUs and GPUs and lost GPU of each node.

    Parameters
    ----------
    world : the cluster, changed
    task, memory_mib, node, gpu_mask : what the engine's `place` takes

    Returns
    -------
    (nodes, 3), as `node_share` says
    """
    if node >= 0:
        place_task(world, task, memory_mib, node, gpu_mask)
    share = np.empty((len(world.gpu_model), 3))
    for each in range(len(share)):
        share[each, 0], share[each, 1], share[each, 2] = node_share(world, each, True)
    return share


NODES = (("ant", 64, 2, "T4"), ("bee", 32, 2, "P100"), ("cat", 48, 4, "V100M16"),
         ("dog", 48, 4, "G2"), ("elk", 64, 4, "G3"))  # name, vCPU, GPUs, model
KINDS = ((0, 5), (1, 4), (2, 2), (4, 1))  # GPUs (0: a share of one), and how many classes


def small_cluster() -> Cluster:
    """Five nodes of five GPU models."""
    name, vcpu, gpus, model = (np.array(column) for column in zip(*NODES, strict=True))
    return Cluster(name.astype(object), vcpu * 1000, vcpu * 4096, gpus, model.astype(object),
                   np.full(len(name), "", object))


@cache
def small_classes() -> TaskClasses:
    """Choose the most frequent classes of the default trace, some of each kind of GPU request."""
    classes = task_classes(default_tasks())[0]
    kind = np.where(classes.gpu_milli < WHOLE_GPU_MILLI, 0, classes.num_gpus)
    fits = (classes.num_gpus > 0) & (classes.gpu_spec == "") & (classes.cpu_milli <= 32_000)
    kept = np.concatenate([np.flatnonzero(fits & (kind == gpus))[:most] for gpus, most in KINDS])
    columns = {key: getattr(classes, key)[kept]
               for key in ("cpu_milli", "gpu_milli", "num_gpus", "gpu_spec", "cpu_spec")}
    return TaskClasses(**columns, count=np.ones(len(kept), np.int64), num_tasks=len(kept))


FEW_SLOTS = 1024  # of the table of answers: no result depends on it


def small_world() -> World:
    """Make the five nodes, empty."""
    cluster = small_cluster()
    classes = small_classes()
    world = world_of(cluster, classes, classes, PowerSettings().of(cluster))
    known = world.known
    return world._replace(known=known._replace(key=known.key[:FEW_SLOTS].copy(),
                                               value=known.value[:FEW_SLOTS].copy()))


def small_arrivals(seed: int = 20) -> Integers:
    """Classes of the tasks that arrive, until they ask for all GPUs."""
    classes = small_classes()
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(classes), size=100)
    asked = np.cumsum((classes.num_gpus * classes.gpu_milli)[drawn])
    whole = int(small_cluster().num_gpus.sum()) * WHOLE_GPU_MILLI
    return drawn[:int(np.searchsorted(asked, whole)) + 1]


def small_rules(world: World, alpha: float = 0.1) -> Rules:
    """FGD, PWR, their mix with so much PWR, and joint."""
    most = round(1000 * alpha)
    joint = policy_of("joint")
    weights = np.array([[1000, 0, 0], [0, 1000, 0], [1000 - most, most, 0], [0, 0, 1000]])
    capacity = np.array([world.state[2].sum(), world.state[0].sum(), world.state[1].sum()])
    normalise = np.array([policy_of(name).scores[0].normalise for name in ("fgd", "pwr", "joint")])
    return Rules(weights, normalise, weighing_of(joint, world), capacity)


class Gpu(NamedTuple):
    """One kind of GPU as `cut` reads it.

    Parameters
    ----------
    tree : its instances
    sizes : (sizes,) in slices, ascending
    create_s : (sizes,) shortest creation of each
    loss : slice-seconds lost at the start, see `start_loss`
    """

    tree: Tree
    sizes: Integers
    create_s: Floats
    loss: float


def gpu_of(mig: Mig) -> Gpu:
    """Gather what `cut` needs to know of one GPU."""
    return Gpu(mig.tree, np.array(mig.sizes), charges_of(mig).create_s, start_loss(mig))


@njit(cache=True)
def deadline_bound(gpu: Gpu, times_s: Floats) -> float:
    """Time in s before which no schedule can end: the least deadline that the work allows.

    Parameters
    ----------
    gpu, times_s : the GPU, and (tasks, sizes) run times
    """
    num_slices = gpu.sizes[-1]
    steps = np.sort((times_s + gpu.create_s).ravel())
    low_s = 0.0
    for k in range(len(steps) + 1):
        high_s = steps[k] if k < len(steps) else np.inf
        work = least_work(times_s, gpu.sizes, gpu.create_s, low_s)
        needed_s = min((work + gpu.loss) / num_slices, work / (num_slices - 1))
        if needed_s <= high_s:
            return float(max(low_s, needed_s))
        low_s = high_s
    return np.inf


class Phase(NamedTuple):
    """A plan, worked out.

    Parameters
    ----------
    instance, start_s : (tasks,) where and when each task runs
    created_s, closing_s : (instances,) as in `PlanTimes`
    makespan_s : when the last task ends
    """

    instance: Integers
    start_s: Floats
    created_s: Floats
    closing_s: Floats
    makespan_s: float


@njit(cache=True)
def work_out(tree: Tree, time_s: Floats, instance: Integers) -> Phase:
    """Run a plan by events, longest task first on each instance.

    Parameters
    ----------
    tree, time_s, instance : the instances; (tasks,) run time of each task where the plan puts it
    """
    load_s = np.zeros(len(tree.gpu))
    for task in range(len(instance)):
        load_s[instance[task]] += time_s[task]
    created_s, closing_s, end_s = run_events(tree, load_s)
    order = np.argsort(-time_s, kind="mergesort")
    start_s = in_a_row(order, instance, created_s, time_s)
    return Phase(instance, start_s, created_s, closing_s, end_s.max())


@njit(cache=True)
def list_tasks(time_s: Floats, instance: Integers, num_instances: int) -> Lists:
    """Tasks of every instance, longest first.

    Parameters
    ----------
    time_s, instance, num_instances : as for `work_out`, and how many instances there are
    """
    order = np.argsort(-time_s, kind="mergesort")
    task = np.empty(len(order), np.int64)
    begin = np.zeros(num_instances + 1, np.int64)
    count = 0
    for i in range(num_instances):
        for each in order:
            if instance[each] == i:
                task[count] = each
                count += 1
        begin[i + 1] = count
    return Lists(task, begin)


@njit(cache=True)
def family_of_plans(gpu: Gpu, times_s: Floats) -> tuple[Integers, Integers, Floats, Floats]:
    """Members of the family, the plan of each, when its instances end, and its makespan."""
    num_tasks, num_sizes = times_s.shape
    order = np.empty((num_sizes, num_tasks), np.int64)
    allocation = np.empty(num_tasks, np.int64)
    for k in range(num_sizes):
        order[k] = np.argsort(-times_s[:, k], kind="mergesort")
    for task in range(num_tasks):
        allocation[task] = cheapest_size(times_s, gpu.sizes, task, -1, False)
    most = 1 + num_tasks * num_sizes
    members = np.empty((most, num_tasks), np.int64)
    plans = np.empty((most, num_tasks), np.int64)
    ends_s = np.empty((most, len(gpu.tree.gpu)))
    makespans_s = np.empty(most)
    count = 0
    is_more = True
    while is_more:
        members[count] = allocation
        plans[count], ends_s[count], makespans_s[count] = repartition(
            gpu.tree, times_s, order, allocation, np.inf, False)
        count += 1
        is_more = raise_longest(times_s, gpu.sizes, allocation, False)
    return members[:count], plans[:count], ends_s[:count], makespans_s[:count]


class Cut(NamedTuple):
    """FAR's three phases.

    Parameters
    ----------
    members, makespans_s : (members, tasks) position of each task's size, and (members,) the
        makespan after phase 2
    member : the best one
    placed, refined : schedule after phase 2, and after phase 3
    made : (3,) steps of phase 3 that moved no task, one, or two
    is_kept : whether the refined schedule ends earlier, so that FAR keeps it
    bound_s : no schedule ends before it
    """

    members: Integers
    makespans_s: Floats
    member: int
    placed: Phase
    refined: Phase
    made: Integers
    is_kept: bool
    bound_s: float


@njit(cache=True)
def cut(gpu: Gpu, times_s: Floats) -> Cut:
    """Go through all phases with a batch.

    Parameters
    ----------
    gpu, times_s : the GPU, and (tasks, sizes) run times
    """
    members, plans, ends_s, makespans_s = family_of_plans(gpu, times_s)
    best = np.argmin(makespans_s)
    tree = gpu.tree
    time_s = np.empty(len(times_s))
    for task in range(len(time_s)):
        time_s[task] = times_s[task, members[best, task]]
    placed = work_out(tree, time_s, plans[best])
    lists = list_tasks(time_s, plans[best], len(tree.gpu))
    made = np.zeros(3, np.int64)
    _refine(tree, time_s, lists, ends_s[best], made)
    moved = np.empty(len(time_s), np.int64)
    for i in range(len(tree.gpu)):
        moved[lists.task[lists.begin[i]:lists.begin[i + 1]]] = i
    refined = work_out(tree, time_s, moved)
    is_kept = made[1] + made[2] > 0 and refined.makespan_s < placed.makespan_s
    return Cut(members, makespans_s, int(best), placed, refined, made, is_kept,
               deadline_bound(gpu, times_s))


class Answer(NamedTuple):
    """What a job gets.

    Parameters
    ----------
    payoff : utility less price
    node, gpus : (nodes of the place,) empty if it fits nowhere
    """

    payoff: float
    node: Integers
    gpus: Integers


@njit(cache=True)
def ask(terms: Terms, job: int, free: Integers, node_price: Floats) -> Answer:
    """Find the best place for a job that does not run yet, and take it if it pays.

    Parameters
    ----------
    terms, job : the round, the job
    free, node_price : (nodes,) GPUs left, and what one costs; changed
    """
    none = np.empty(0, np.int64)
    buckets = buckets_of(terms.cluster, free)
    payoff, place = best_place(terms, NO_TOLL, buckets, job, free, node_price, Place(none, none))
    if payoff > 0:
        take(terms, buckets, place, free, node_price)
    return Answer(payoff, place.node, place.gpus)


def toy_terms(eta: float | None = None) -> tuple[Terms, Integers]:
    """Make a round in which all jobs of the toy have arrived and none has run, and its queue."""
    load = toy_workload()
    jobs = load.jobs
    count = len(jobs.steps)
    state = HadarState(load.cluster, jobs, float(jobs.arrival_s.max()), np.arange(count),
                       jobs.steps.copy(), nothing_runs(), np.zeros(count), np.zeros(count))
    return Hadar(eta=eta).terms(state)


DECIDERS = ("fifo", "edf", "priority", "greedy", "rg")


class Decisions(NamedTuple):
    """What `DECIDERS` decide.

    Parameters
    ----------
    node, configuration : (policies, jobs) -1 for a job that waits
    paper_eur, code_eur : (policies,) the two objectives of {doc}`31_proxy`
    """

    node: Integers
    configuration: Integers
    paper_eur: Floats
    code_eur: Floats


@njit(cache=True)
def search_at_random(fleet: Fleet, jobs: DueJobs, now_s: float, order: Integers,
                     how: SearchOptions) -> Search:
    """Randomized greedy from an order by pressure: `assign_at_random` in one piece."""
    count = len(jobs.due_s)
    search = Search(order.copy(), np.array([max(how.seed % MODULUS, 1)]), np.full(count, -1),
                    np.full(count, -1), np.array([np.inf]))
    number = int(np.int64(0))  # a literal would be compiled for once more
    while number < how.max_iterations:
        number = more_rounds(fleet, jobs, now_s, how, search, number, 1_000_000)
    return search


@njit(cache=True)
def urgencies(jobs: DueJobs) -> Floats:
    """(3, jobs) what fifo, edf and priority sort by."""
    urgency = np.empty((3, len(jobs.due_s)))
    urgency[0] = jobs.submission_s
    urgency[1] = jobs.due_s
    urgency[2] = -jobs.weight_eur_per_s
    return urgency


@njit(cache=True)
def decide_all(fleet: Fleet, jobs: DueJobs, now_s: float, how: SearchOptions) -> Decisions:
    """Let every policy decide about a queue; all nodes are empty.

    Parameters
    ----------
    fleet, jobs, now_s, how : as for `randomized_greedy`
    """
    node = np.empty((5, len(jobs.due_s)), np.int64)
    configuration = np.empty((5, len(jobs.due_s)), np.int64)
    urgency = urgencies(jobs)
    for rule in range(len(urgency)):
        opened = OpenNodes(*open_lists(fleet, fleet.node_gpus))
        node[rule], configuration[rule] = assign_waiting(fleet, jobs, now_s, opened, urgency[rule])
    order = np.argsort(-pressure_s(jobs, now_s), kind="mergesort")
    node[3], configuration[3] = assign_in_order(fleet, jobs, now_s, order)
    search = search_at_random(fleet, jobs, now_s, order, how)
    node[4] = search.node
    configuration[4] = search.configuration
    paper_eur = np.empty(5)
    code_eur = np.empty(5)
    for each in range(5):
        paper_eur[each] = paper_objective(fleet, jobs, now_s, node[each], configuration[each],
                                          how.rho, how.period_s)
        code_eur[each] = code_objective(fleet, jobs, now_s, node[each], configuration[each],
                                        how.rho)
    return Decisions(node, configuration, paper_eur, code_eur)


class Widget(NamedTuple):
    """What a page of its own needs.

    Parameters
    ----------
    kernels : name -> compiled function, and the arguments of an example call
    data : what else the page shows, as JSON knows it
    """

    kernels: dict[str, Any]
    data: dict[str, Any]


def _place_widget() -> Widget:
    world = small_world()
    classes = small_classes()
    memory = empty_memory(1, len(NODES), 3)
    kernels = {"weigh": (weigh, (world, memory, 0, 0, small_rules(world))),
               "put": (put, (world, 0, 0, 0, 1))}
    tasks = [classes.cpu_milli, classes.gpu_milli, classes.num_gpus]
    return Widget(kernels, {
        "nodes": [list(node) for node in NODES], "num_tasks": int(world.target.num_tasks),
        "classes": np.stack(tasks, axis=1).tolist(), "arrivals": small_arrivals().tolist()})


CUT_MODELS = ("A30", "A100", "H100")


def flat(value: Any, name: str) -> dict[str, Any]:
    """Fields of nested named tuples by path: "gpu.tree.size"."""
    if not hasattr(value, "_fields"):
        return {name: value}
    return {path: field for key in value._fields
            for path, field in flat(getattr(value, key), f"{name}.{key}").items()}


def _cut_widget() -> Widget:
    gpus = {model: gpu_of(mig_of(model)) for model in CUT_MODELS}
    times_s = np.array([[40.0, 20.0, 10.0], [24.0, 14.0, 10.0], [30.0, 18.0, 12.0]])
    data = {model: {path: np.asarray(field).tolist() for path, field in flat(gpu, "gpu").items()}
            for model, gpu in gpus.items()}
    return Widget({"cut": (cut, (gpus["A30"], times_s))}, {"gpus": data})


def _prices_widget() -> Widget:
    load = toy_workload()
    terms, queue = toy_terms()
    free = load.cluster.node_gpus.copy()
    kernels = {"ask": (ask, (terms, 0, free, np.ones(len(free)))),
               "node_prices": (node_prices, (terms, free))}
    return Widget(kernels, {
        "jobs": load.job_name, "nodes": load.node_name, "types": load.type_name,
        "queue": queue.tolist(), "low_at_one": float(toy_terms(1.0)[0].low)})


def _queue_widget() -> Widget:
    instance = toy_instance()
    how = SearchOptions(max_iterations=200)
    example = (instance.fleet, instance.jobs, 600.0, how)
    names = [instance.configuration_name(c) for c in range(len(instance.fleet.configuration_gpus))]
    return Widget({"decide_all": (decide_all, example)}, {
        "jobs": instance.job_name, "nodes": instance.node_name, "configurations": names,
        "policies": DECIDERS})


WIDGETS = {"place": _place_widget, "cut": _cut_widget, "prices": _prices_widget,
           "queue": _queue_widget}
