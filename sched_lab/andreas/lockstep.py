"""The objective of many assignments, and all rounds of the randomised greedy, as one array program."""

# A module, written by hand.

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..lab.arrays import (
    Array,
    Floats,
    Integers,
    free_bytes,
    get_xp,
    put,
    that_fit,
    to_device,
    to_host,
)
from ..lab.frames import InputError
from ..lab.jit import njit
from .greedy import (
    DEFAULTS,
    MODULUS,
    MULTIPLIER,
    SPAN,
    SWAP_HEAVIER,
    SWAP_LIGHTER,
    TWO_STEPS,
    SearchOptions,
    assign_at_random,
    check_options,
    choices_of,
    pressure_s,
    shake,
    sort_again,
)
from .model import SECONDS_PER_HOUR, Assignment, Fleet, Jobs, check_assignment
from .proxy import slowest_s
from .rules import open_nodes

__all__ = ['proxies_eur', 'random_rounds']


class Problem(NamedTuple):
    """Nodes and jobs as the array programs read them, on one device.

    Parameters
    ----------
    xp : array functions of the device
    levels : most GPUs of a node, and one
    node_type, node_gpus : (nodes,)
    configuration_gpus : (configurations + 1,) the last one, 0, is that of a job that waits
    price_eur_per_h : (types * levels,) of a node with so many GPUs in use, 0 if none is
    time_s : (jobs * (configurations + 1),) the last of each job, infinite, is for waiting
    due_s, weight_eur_per_s, waiting_eur : (jobs,) the last is what it costs if a job waits
    """

    xp: Any
    levels: int
    node_type: Array
    node_gpus: Array
    configuration_gpus: Array
    price_eur_per_h: Array
    time_s: Array
    due_s: Array
    weight_eur_per_s: Array
    waiting_eur: Array


def problem_of(fleet: Fleet, jobs: Jobs, from_s: float, rho: float, xp: Any) -> Problem:
    """Bring nodes and jobs to a device; a job that waits is priced as if it started at `from_s`."""
    price = fleet.cost_eur_per_h.copy()
    never = np.full((len(jobs.due_s), 1), np.inf)
    price[:, 0] = 0.0
    late_s = np.maximum(from_s + slowest_s(jobs.times_s) - jobs.due_s, 0.0)
    return Problem(xp, price.shape[1], *to_device((
        fleet.node_type, fleet.node_gpus, np.append(fleet.configuration_gpus, 0), price.reshape(-1),
        np.hstack([jobs.times_s, never]).reshape(-1), jobs.due_s, jobs.weight_eur_per_s,
        rho * jobs.weight_eur_per_s * late_s), xp))


def add_rows(start: Array, rows: Array) -> Array:
    """Add the rows to `start` one after another: another order rounds differently."""
    for i in range(rows.shape[0]):
        start = start + rows[i, :]
    return start


def choice_of(problem: Problem, configuration: Array) -> Array:
    """Configuration, or the one past the last for a job that waits."""
    return problem.xp.where(configuration < 0, problem.configuration_gpus.shape[0] - 1,
                            configuration)


def times_of(problem: Problem, configuration: Array) -> Array:
    """(jobs, decisions) run time of each job, infinite if it waits."""
    row = problem.xp.arange(configuration.shape[0])[:, None] * problem.configuration_gpus.shape[0]
    return problem.time_s[row + choice_of(problem, configuration)]


def cells_of(problem: Problem, node: Array) -> Array:
    """(jobs, decisions) node in a flat (nodes + 1, decisions), the last row for waiting."""
    xp = problem.xp
    num = node.shape[1]
    return xp.where(node < 0, problem.node_type.shape[0], node) * num + xp.arange(num)[None, :]


def gpus_of_nodes(problem: Problem, node: Array, configuration: Array) -> Array:
    """(nodes, decisions) GPUs in use: the array form of `gpus_in_use`, job after job."""
    xp = problem.xp
    num_nodes = problem.node_type.shape[0]
    (num_jobs, num) = node.shape
    used = xp.zeros((num_nodes + 1) * num, dtype=xp.int64)
    cell = cells_of(problem, node)
    gpus = problem.configuration_gpus[choice_of(problem, configuration)]
    for job in range(num_jobs):
        put(used, cell[job, :], used[cell[job, :]] + gpus[job, :])
    return xp.reshape(used[:num_nodes * num], (num_nodes, num))


def code_objectives(problem: Problem, now_s: float, used: Array, configuration: Array) -> Array:
    """(decisions,) the array form of `code_objective`, from the GPUs in use on each node."""
    xp = problem.xp
    num = used.shape[1]
    time_s = times_of(problem, configuration)
    forever = xp.full((1, num), xp.inf)
    first_s = xp.min(xp.concat([time_s, forever]), axis=0)
    end_s = xp.where(first_s < xp.inf, first_s, 0.0)
    price = problem.price_eur_per_h[problem.node_type[:, None] * problem.levels + used]
    energy_eur = end_s * add_rows(xp.zeros(num, dtype=xp.float64), price / SECONDS_PER_HOUR)
    late_s = xp.maximum(now_s + end_s[None, :] - problem.due_s[:, None], 0.0)
    late_eur = problem.weight_eur_per_s[:, None] * late_s
    charge_eur = xp.where(time_s < xp.inf, late_eur, problem.waiting_eur[:, None])
    return xp.where(first_s < xp.inf, add_rows(energy_eur, charge_eur), xp.inf)


def first_ends_eur(problem: Problem, time_s: Array, cell: Array, cost_eur: Array) -> Array:
    """(nodes, decisions) cost of the first job to end on each node, the cheaper of two that tie."""
    xp = problem.xp
    num_nodes = problem.node_type.shape[0]
    num = time_s.shape[1]
    first_s = xp.full(((num_nodes + 1) * num,), xp.inf, dtype=xp.float64)
    first_eur = xp.zeros_like(first_s)
    for job in range(time_s.shape[0]):
        here = cell[job, :]
        job_s = time_s[job, :]
        job_eur = cost_eur[job, :]
        known_s = first_s[here]
        known_eur = first_eur[here]
        is_first = (job_s < known_s) | ((job_s == known_s) & (job_eur < known_eur))
        put(first_s, here, xp.where(is_first, job_s, known_s))
        put(first_eur, here, xp.where(is_first, job_eur, known_eur))
    return xp.reshape(first_eur[:num_nodes * num], (num_nodes, num))


def paper_objectives(problem: Problem, now_s: float, node: Array, configuration: Array) -> Array:
    """(decisions,) array form of `paper_objective`; the problem prices waiting from now + H on."""
    xp = problem.xp
    num = node.shape[1]
    time_s = times_of(problem, configuration)
    cell = cells_of(problem, node)
    runs = time_s < xp.inf
    own_s = xp.where(runs, time_s, 0.0)
    kind = problem.node_type[xp.maximum(node, 0)]
    gpus = problem.configuration_gpus[choice_of(problem, configuration)]
    cost_eur = own_s * problem.price_eur_per_h[kind * problem.levels + gpus] / SECONDS_PER_HOUR
    energy_eur = first_ends_eur(problem, time_s, cell, cost_eur)
    late_s = xp.maximum(now_s + own_s - problem.due_s[:, None], 0.0)
    late_eur = problem.weight_eur_per_s[:, None] * late_s
    charge_eur = xp.where(runs, late_eur, problem.waiting_eur[:, None])
    zero = xp.zeros(num, dtype=xp.float64)
    return add_rows(zero, charge_eur) + add_rows(zero, energy_eur)


def is_wrong(problem: Problem, fleet: Fleet, used: Array, node: Array,
             configuration: Array) -> Array:
    """(decisions,) whether `check_assignment` would refuse it, if nodes and configurations exist.

    Parameters
    ----------
    used : (nodes, decisions) GPUs in use
    node, configuration : (jobs, decisions)
    """
    xp = problem.xp
    runs = node >= 0
    kind = xp.asarray(fleet.configuration_type)[xp.maximum(configuration, 0)]
    is_right_type = kind == problem.node_type[xp.maximum(node, 0)]
    can = is_right_type & (times_of(problem, configuration) < xp.inf)
    wrong = (runs != (configuration >= 0)) | (runs & ~can)
    return xp.any(wrong, axis=0) | xp.any(used > problem.node_gpus[:, None], axis=0)


def pieces(num: int, at_once: int) -> list[slice]:
    """Cut so many columns into pieces of at most `at_once`."""
    return [slice(start, min(start + at_once, num)) for start in range(0, num, at_once)]


def check_shapes(jobs: Jobs, decisions: Assignment) -> None:
    """Refuse decisions of the wrong shape."""
    shapes = decisions.node.shape, decisions.configuration.shape
    if shapes[0] != shapes[1] or len(shapes[0]) != 2 or shapes[0][0] != len(jobs.due_s):
        raise InputError(f"nodes {shapes[0]}, configurations {shapes[1]}, {len(jobs.due_s)} jobs",
                         mend="give both in the shape (jobs, decisions)")


def values_of(problem: Problem, fleet: Fleet, jobs: Jobs, now_s: float, decisions: Assignment,
              as_code: bool) -> Floats:
    """Check some decisions and value them, all at once."""
    xp = problem.xp
    for known, most in zip(decisions, (fleet.node_type, fleet.configuration_type), strict=True):
        if ((known < -1) | (known >= len(most))).any():
            raise InputError("no such node or configuration",
                             mend="count from 0, and give -1 twice to a job that waits")
    node, configuration = to_device(tuple(np.ascontiguousarray(x, np.int64) for x in decisions), xp)
    used = gpus_of_nodes(problem, node, configuration)
    wrong = to_host(is_wrong(problem, fleet, used, node, configuration))
    if wrong.any():
        first = int(np.argmax(wrong))
        check_assignment(fleet, jobs.times_s, Assignment(*(x[:, first] for x in decisions)))
    if as_code:
        return to_host(code_objectives(problem, now_s, used, configuration))
    return to_host(paper_objectives(problem, now_s, node, configuration))


def numbers_each(fleet: Fleet, num_jobs: int) -> int:
    """Numbers of 8 bytes that one decision takes at most while it is made and judged."""
    shelves = 4 * fleet.cost_eur_per_h.size + 8 * len(fleet.configuration_type)
    return 24 * num_jobs + 8 * len(fleet.node_type) + shelves


def proxies_eur(fleet: Fleet, jobs: Jobs, now_s: float, decisions: Assignment,
                how: SearchOptions = DEFAULTS, *, device: str = "cpu",
                max_bytes: int | None = None) -> Floats:
    """Values of many assignments: `proxy_eur` for all columns at once, equal to the last bit.

    Parameters
    ----------
    fleet, jobs, now_s : nodes, the queue and the present time
    decisions : node and configuration (jobs, decisions)
    how : which objective, `as_code`, and its `rho` and `period_s`
    device : "cpu" or "cuda" (`get_xp`)
    max_bytes : memory to take on the device; half of what is free if not given

    Returns
    -------
    (decisions,) EUR

    Raises
    ------
    InputError : no such device, or not even one decision fits into the memory
    ValueError : what `check_assignment` says about the first decision that violates a constraint
    """
    check_shapes(jobs, decisions)
    xp = get_xp(device)
    num = decisions.node.shape[1]
    most = free_bytes(xp) // 2 if max_bytes is None else max_bytes
    at_once = that_fit(8 * numbers_each(fleet, len(jobs.due_s)), most, what="decisions")
    waits_from_s = now_s if how.as_code else now_s + how.period_s
    problem = problem_of(fleet, jobs, waits_from_s, how.rho, xp)
    cut = [Assignment(*(x[:, piece] for x in decisions)) for piece in pieces(num, at_once)]
    values = [values_of(problem, fleet, jobs, now_s, some, how.as_code) for some in cut]
    return np.concatenate(values) if values else np.empty(0)


def leaps(xp: Any, number: Array, multiplier: Array | int) -> Array:
    """Multiply modulo 2^31 - 1: the array form of `leap`."""
    product = number * multiplier
    rest = (product & MODULUS) + (product >> 31)
    return xp.where(rest >= MODULUS, rest - MODULUS, rest)


def powers(xp: Any, base: int, num: int) -> Array:
    """(num,) powers 1, base, base^2, ... modulo 2^31 - 1: twice as many with every step."""
    known = xp.ones(1, dtype=xp.int64)
    while known.shape[0] < num:
        known = xp.concat([known, leaps(xp, known, base)])
        base = base * base % MODULUS
    return known[:num]


def numbers(xp: Any, states: Array) -> Array:
    """What `draw` returns in each of these states of its engine."""
    first = leaps(xp, states, MULTIPLIER) - 1
    second = leaps(xp, states, TWO_STEPS) - 1
    return (xp.astype(first, xp.float64) + xp.astype(second, xp.float64) * SPAN) / (SPAN * SPAN)


class Chance(NamedTuple):
    """What the random steps of all rounds share, on one device.

    Parameters
    ----------
    order : (jobs,) sorted by falling pressure
    limit : (jobs * jobs,) for each position how likely each job goes behind the one that stands
        there
    num_draws : (jobs,) how many numbers it takes to draw a candidate for a job
    total : (jobs,) last finite ticket of a job, 0 if there is no choice
    tickets : (jobs, configurations) as `choices_of`
    """

    order: Array
    limit: Array
    num_draws: Array
    total: Array
    tickets: Array


def chance_of(jobs: Jobs, order: Integers, tickets: Floats, as_code: bool, xp: Any) -> Chance:
    """Tables of the random steps on a device."""
    weight = jobs.weight_eur_per_s
    is_open = np.isfinite(tickets)
    if as_code:
        limit = np.where(weight[None, :] > weight[order][:, None], SWAP_HEAVIER, SWAP_LIGHTER)
    else:
        half = np.full(len(weight), 0.5)
        np.divide(0.5 * weight.min(initial=np.inf), weight, out=half, where=weight > 0)
        limit = np.broadcast_to(half, (len(half), len(half)))
    num_draws = np.where(is_open.any(axis=1), 1, 2) * (not as_code)
    total = np.max(tickets, axis=1, initial=0.0, where=is_open)
    limits = np.ascontiguousarray(limit).reshape(-1)
    return Chance(*to_device((order, limits, num_draws, total, tickets), xp))


def shaken(xp: Any, chance: Chance, drawn: Array) -> Array:
    """(jobs, rounds) orders that `shake` makes of the sorted one, from numbers drawn."""
    num_jobs, num = drawn.shape
    if num_jobs == 0:
        return xp.zeros((0, num), dtype=xp.int64)
    job = chance.order[0] + xp.zeros(num, dtype=xp.int64)
    rows = []
    for i in range(1, num_jobs):
        goes = drawn[i - 1, :] < chance.limit[i * num_jobs + job]
        rows.append(xp.where(goes, chance.order[i], job))
        job = xp.where(goes, job, chance.order[i])
    return xp.stack([*rows, job])


@njit(cache=True)
def shaken_in_turn(order: Integers, pressure: Floats, weight: Floats, starts: Integers,
                   as_code: bool) -> Integers:
    """(jobs, rounds) orders, each made of the one before, for equal pressures; changes `order`."""
    orders = np.empty((len(order), len(starts)), np.int64)
    for i in range(len(starts)):
        sort_again(order, pressure)
        shake(order, weight, starts[i:i + 1].copy(), as_code)
        orders[:, i] = order
    return orders


def candidates_drawn(xp: Any, chance: Chance, order: Array, starts: Array, jumps: Array) -> Array:
    """(jobs, rounds) position of the candidate that `draw_candidate` draws for each job in turn.

    Parameters
    ----------
    order : (jobs, rounds) whose turn it is
    starts : (rounds,) state of the engine at the beginning of each round
    jumps : factor of the state after 0, 1, 2, ... numbers of a round
    """
    used = chance.num_draws[order]
    before = order.shape[0] + xp.cumulative_sum(used, axis=0) - used
    limit = numbers(xp, leaps(xp, jumps[before], starts[None, :])) * chance.total[order]
    position = xp.zeros_like(order)
    for i in range(chance.tickets.shape[1]):
        position = position + xp.astype(chance.tickets[:, i][order] < limit, xp.int64)
    return position


SHIFT = 20  # a key holds a rank, a configuration and a level, the last two of 20 bits
NOWHERE = 2**60
MASK = 2**SHIFT - 1


class Shelves(NamedTuple):
    """The lists of `OpenNodes` in all rounds, flat; the last row is for jobs that find no place.

    Parameters
    ----------
    head : (types * levels + 1, rounds)
    following, free : (nodes + 1, rounds)
    """

    head: Array
    following: Array
    free: Array


def full_shelves(fleet: Fleet, num: int, xp: Any) -> Shelves:
    """All nodes open, in so many rounds."""
    opened = open_nodes(fleet, fleet.node_gpus)
    last = len(fleet.node_type)
    columns = np.append(opened.head, last), np.append(opened.following, last), np.append(
        opened.free, 0)
    return Shelves(*(xp.repeat(xp.asarray(column), num) for column in columns))


def wishes_of(options: Integers) -> Integers:
    """(configurations, jobs * configurations) keys, given a job and the candidate drawn for it.

    Parameters
    ----------
    options : (jobs, configurations) what `candidates` says
    """
    num_jobs, num = options.shape
    rank = np.full((num_jobs, num, num), NOWHERE >> 2 * SHIFT)
    for job, position in zip(*np.nonzero(options >= 0), strict=True):
        rank[job, :, options[job, position]] = position + 1
        rank[job, position, options[job, position]] = 0
    keys = (rank << 2 * SHIFT) + (np.arange(num) << SHIFT)
    return np.ascontiguousarray(keys.reshape(-1, num).T)


def levels_left(problem: Problem, fleet: Fleet, head: Array, num: int) -> Array:
    """(configurations, rounds) free GPUs of the fullest node where each fits, or `NOWHERE`."""
    xp = problem.xp
    levels = problem.levels
    num_types = len(fleet.cost_eur_per_h)
    is_open = xp.reshape(head[:num_types * levels * num], (num_types, levels, num)) >= 0
    level = xp.full((num_types, num), NOWHERE, dtype=xp.int64)
    of_gpus = [level] * (1 + max(levels, int(fleet.configuration_gpus.max())))
    for gpus in range(levels - 1, 0, -1):
        of_gpus[gpus] = level = xp.where(is_open[:, gpus, :], gpus, level)
    pairs = zip(fleet.configuration_type.tolist(), fleet.configuration_gpus.tolist(), strict=True)
    return xp.stack([of_gpus[gpus][kind, :] for kind, gpus in pairs])


def move_nodes(shelves: Shelves, source: Array, target: Array, left: Array) -> Array:
    """Move the first node of one list to the front of another, in every round; which nodes.

    Parameters
    ----------
    source, target : (rounds,) cells of the lists
    left : (rounds,) free GPUs that the node keeps
    """
    head, following, free = shelves
    num = source.shape[0]
    node = head[source]
    cell = node * num + source % num
    put(head, source, following[cell])
    put(following, cell, head[target])
    put(head, target, node)
    put(free, cell, left)
    return node


LOOK_EVERY = 16


def place_turn(problem: Problem, first: Array, shelves: Shelves, key: Array) -> tuple[Array, Array]:
    """Place one job in every round, by its smallest key; node and configuration, -1 if it waits.

    Parameters
    ----------
    first : (configurations + 1,) where the lists of each configuration's type begin, then the
        list that does not exist
    key : (rounds,) rank, configuration and level; `NOWHERE` or more if nothing fits
    """
    xp = problem.xp
    column = xp.arange(key.shape[0])
    is_placed = key < NOWHERE
    c = key >> SHIFT & MASK
    level = key & MASK
    left = level - problem.configuration_gpus[c]
    source = xp.where(is_placed, first[c] + level, first[-1])
    target = xp.where(is_placed, first[c] + left, first[-1])
    num = key.shape[0]
    node = move_nodes(shelves, source * num + column, target * num + column, left)
    return xp.where(is_placed, node, -1), xp.where(is_placed, c, -1)


def place_together(problem: Problem, fleet: Fleet, wishes: Array, shelves: Shelves,
                   ask: Array) -> tuple[Array, Array]:
    """Give each job in turn its place, in all rounds: the array form of `place_round`.

    Parameters
    ----------
    shelves : free nodes, changed
    ask : (jobs, rounds) whose turn it is, times the number of configurations, plus the candidate
        drawn

    Returns
    -------
    node and configuration (turns, rounds), -1 if the job waits; no turns are left when no GPU is
    """
    xp = problem.xp
    num = ask.shape[1]
    rows = xp.arange(wishes.shape[0])[:, None] * wishes.shape[1]
    flat = xp.reshape(wishes, (-1,))
    nowhere = len(fleet.cost_eur_per_h) * problem.levels
    first = xp.asarray(np.append(fleet.configuration_type * problem.levels, nowhere))
    places = []
    for turn in range(ask.shape[0]):
        level = levels_left(problem, fleet, shelves.head, num)
        if turn % LOOK_EVERY == 0 and not bool(xp.any(level < NOWHERE)):
            break
        key = xp.min(flat[rows + ask[turn, :][None, :]] + level, axis=0)
        places.append(place_turn(problem, first, shelves, key))
    if not places:
        return tuple(xp.zeros((0, num), dtype=xp.int64) for _ in range(2))
    nodes, configurations = zip(*places, strict=True)
    return xp.stack(nodes), xp.stack(configurations)


class Plan(NamedTuple):
    """What all pieces of a run share.

    Parameters
    ----------
    jumps : factors of the state at the beginning of a round after 0, 1, 2, ... numbers
    jump : factor that leads to the beginning of the next round
    order : (jobs,) sorted; with equal pressures that of the last round, which the next one sorts
        again
    """

    problem: Problem
    chance: Chance
    wishes: Array
    jumps: Array
    jump: int
    pressure: Floats
    order: Integers
    as_code: bool


def plan_of(fleet: Fleet, jobs: Jobs, now_s: float, how: SearchOptions, xp: Any) -> Plan:
    """Prepare the rounds of a decision."""
    pressure = pressure_s(jobs, now_s)
    options, tickets = choices_of(fleet, jobs, now_s)
    order = np.argsort(-pressure, kind="stable")
    chance = chance_of(jobs, order, tickets, how.as_code, xp)
    num_draws = len(order) + int(xp.sum(chance.num_draws))
    jumps = powers(xp, TWO_STEPS, num_draws)
    jump = pow(TWO_STEPS, num_draws, MODULUS)
    wishes = xp.asarray(wishes_of(options))
    problem = problem_of(fleet, jobs, now_s if how.as_code else now_s + how.period_s, how.rho, xp)
    return Plan(problem, chance, wishes, jumps, jump, pressure, order, how.as_code)


def starts_of(plan: Plan, seed: int, rounds: slice) -> Array:
    """(rounds,) states of the engine at the beginning of these rounds, counted from 0."""
    first = max(seed % MODULUS, 1) * pow(plan.jump, rounds.start, MODULUS) % MODULUS
    return leaps(plan.problem.xp, powers(plan.problem.xp, plan.jump, rounds.stop - rounds.start),
                 first)


def has_ties(pressure: Floats) -> bool:
    """Whether jobs have equal pressure, so that a round begins with the order of the last one."""
    return len(np.unique(pressure)) < len(pressure)


def orders_of(plan: Plan, jobs: Jobs, starts: Array) -> Array:
    """(jobs, rounds) whose turn it is: side by side, or in turn if pressures are equal."""
    xp = plan.problem.xp
    num_jobs = len(plan.order)
    if has_ties(plan.pressure):
        weight = jobs.weight_eur_per_s
        host = to_host(starts)
        return xp.asarray(shaken_in_turn(plan.order, plan.pressure, weight, host, plan.as_code))
    states = leaps(xp, plan.jumps[:num_jobs][:, None], starts[None, :])
    return shaken(xp, plan.chance, numbers(xp, states))


def play_rounds(plan: Plan, fleet: Fleet, jobs: Jobs, now_s: float,
                starts: Array) -> tuple[Array, Array, Array]:
    """Node and configuration (jobs, rounds) and value (rounds,) of rounds from these states."""
    problem = plan.problem
    num_jobs = len(plan.order)
    num = starts.shape[0]
    xp = problem.xp
    order = orders_of(plan, jobs, starts)
    ask = order * len(fleet.configuration_type)
    if not plan.as_code:
        ask = ask + candidates_drawn(xp, plan.chance, order, starts, plan.jumps)
    shelves = full_shelves(fleet, num, xp)
    placed = place_together(problem, fleet, plan.wishes, shelves, ask)
    cell = xp.reshape(order[:placed[0].shape[0], :] * num + xp.arange(num)[None, :], (-1,))
    found = [xp.full((num_jobs * num,), -1, dtype=xp.int64) for _ in placed]
    for flat, rows in zip(found, placed, strict=True):
        put(flat, cell, xp.reshape(rows, (-1,)))
    node, configuration = (xp.reshape(flat, (num_jobs, num)) for flat in found)
    if not plan.as_code:
        return node, configuration, paper_objectives(problem, now_s, node, configuration)
    used = problem.node_gpus[:, None] - xp.reshape(shelves.free, (-1, num))[:-1, :]
    return node, configuration, code_objectives(problem, now_s, used, configuration)


CPU_AT_ONCE = 1000


class Rounds(NamedTuple):
    """The best of many rounds, the first of which is the plain greedy, and what each is worth.

    Parameters
    ----------
    value_eur : (rounds,)
    """

    best: Assignment
    best_eur: float
    value_eur: Floats


def rounds_at_once(fleet: Fleet, num_jobs: int, xp: Any, at_once: int | None,
                   max_bytes: int | None) -> int:
    """Rounds to hold on a device: as asked, or as many as fit.

    On a processor they are at most `CPU_AT_ONCE`.
    """
    most = free_bytes(xp) // 2 if max_bytes is None else max_bytes
    fit = that_fit(8 * numbers_each(fleet, num_jobs), most, at_once, "rounds")
    return at_once or (fit if hasattr(xp, "cuda") else min(fit, CPU_AT_ONCE))


def random_rounds(fleet: Fleet, jobs: Jobs, now_s: float, how: SearchOptions = DEFAULTS, *,
                  device: str = "cpu", at_once: int | None = None,
                  max_bytes: int | None = None) -> Rounds:
    """Run `randomized_greedy` with its rounds side by side; the result is equal to the last bit.

    Parameters
    ----------
    fleet, jobs, now_s, how : as `randomized_greedy`
    device : "cpu" or "cuda" (`get_xp`)
    at_once : rounds side by side; as many as fit if not given (on a CPU at most `CPU_AT_ONCE`)
    max_bytes : memory to take on the device; half of what is free if not given

    Raises
    ------
    InputError : numbers that `randomized_greedy` refuses, no such device, or too many at once for
        its memory
    """
    check_options(how)
    if at_once is not None and at_once < 1:
        raise InputError(f"{at_once} at once", mend="give 1 or more")
    xp = get_xp(device)
    first = assign_at_random(fleet, jobs, now_s, how._replace(max_iterations=1))
    plan = plan_of(fleet, jobs, now_s, how, xp)
    num_at_once = rounds_at_once(fleet, len(jobs.due_s), xp, at_once, max_bytes)
    best = Assignment(first.node, first.configuration)
    best_eur = float(first.value_eur[0])
    values = [first.value_eur]
    for piece in pieces(how.max_iterations - 1, num_at_once):
        starts = starts_of(plan, how.seed, piece)
        node, configuration, value = play_rounds(plan, fleet, jobs, now_s, starts)
        values.append(to_host(value))
        i = int(np.argmin(values[-1]))
        if values[-1][i] < best_eur:
            best_eur = float(values[-1][i])
            best = Assignment(to_host(node[:, i]), to_host(configuration[:, i]))
    return Rounds(best, best_eur, np.concatenate(values))
