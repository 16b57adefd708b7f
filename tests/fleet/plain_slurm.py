"""Slurm's passes in their plain form: each job is planned anew, on a world of its own, and all of them are."""
import numpy as np

from sched_lab.fleet.replay import slurm
from sched_lab.fleet.replay.case import copied, first_gpus, take
from sched_lab.online.model import lacking


def has_nodes(plan, world, job, chosen) -> bool:
    """Find nodes for the parts of a job in a world, of which a copy is changed."""
    world, asks = copied(world), plan.timed.asks
    chosen.clear()
    part = job
    while part >= 0:
        num, other = slurm.like_parts(plan, part)
        kind, memory_mib = asks.task[part], asks.memory_mib[part]
        has_room = [not is_shut and lacking(world, kind, memory_mib, node) == 0
                    for node, is_shut in enumerate(plan.is_shut)]
        before = len(chosen)
        if not slurm.choose_nodes(np.array(has_room), num, chosen):
            return False
        for node in chosen[before:]:
            take(world, asks, part, node, first_gpus(world, kind, node, world.state.gpu_left_milli[node]), 1)
        part = other
    return True


def earliest(plan, job, running, now_s, chosen) -> float:
    """Take out who runs, one after another, and try whenever a window is over (`_will_run_test`)."""
    if has_nodes(plan, plan.desk.world, job, chosen):
        return now_s
    later = copied(plan.desk.world)
    window_s, until_s, last_s = 30.0, None, None
    line = list(running)
    while line:
        while line:
            end_s, other = line.pop(0)
            node = plan.schedule.node[other]
            if end_s == np.inf:
                return np.inf
            if plan.is_shut[node]:
                continue
            until_s = end_s + 30 - (end_s + plan.zero_s) % 30 if until_s is None else until_s
            last_s = end_s
            take(later, plan.timed.asks, other, node, plan.schedule.gpu_mask[other], -1)
            if line and line[0][0] > until_s + window_s:
                break
        if last_s is None:
            return np.inf
        window_s += plan.slurm.window_linear_s or window_s
        while line and until_s + window_s < line[0][0] < np.inf:
            window_s += plan.slurm.window_linear_s or window_s
        if has_nodes(plan, later, job, chosen):
            return last_s if last_s > now_s else max(last_s + 30, now_s + 1)
    return np.inf


def shut_nodes(plan, aside, start_s, until_s) -> float:
    """Shut who is set aside in a span; the first end of those in it at which the node is free."""
    spans = [one[:3] for one in aside]
    shuts = [one for one in spans if one[1] > start_s and one[0] <= until_s]
    plan.is_shut[:] = False
    plan.is_shut[[node for *_, node in shuts]] = True
    return min([end_s for _, end_s, node in shuts
                if not any(other == node and begin_s <= end_s < last_s for begin_s, last_s, other in spans)],
               default=np.inf)


def serve_all(kernels, plan, waiting, now_s, ends, running) -> bool:
    """Plan the first of those who wait, and start who can start now."""
    aside: list[tuple] = []
    chosen: list[int] = []
    has_started = False
    seen = [job for job in waiting if slurm.hold_reason(plan.ceilings, job) != slurm.BY_JOBS]
    for job in seen[:plan.slurm.max_job_test]:
        if slurm.hold_reason(plan.ceilings, job):
            continue
        if slurm.plan_start(plan, aside, job, running, now_s, chosen) == now_s:
            slurm.start_now(kernels, plan, job, chosen, now_s, ends, running)
            has_started = True
    return has_started


def rank_jobs(plan, waiting, now_s) -> None:
    """Sort those who wait by their priority: as it is now, or as it was worked out last."""
    pace, order = plan.slurm, plan.order

    def priority(job):
        if pace.calc_period_s:
            return plan.priority[job]
        age_s = min(now_s - plan.timed.submit_s[job], pace.max_age_s)
        return np.floor(order.base[job] + pace.age_weight * age_s / pace.max_age_s)

    waiting.sort(key=lambda job: (-priority(job), plan.came[job]))


def fair_tree(shares, used) -> dict[tuple[str, str], float]:
    """Factor of each user by the rules of Slurm's fair tree, as its documentation tells them.

    Of those below the same account whoever has the larger quotient of share and use goes first; a user goes before an
    account with the same, which then has its rank; accounts with the same are one account.
    """
    level = {}
    for row, one in enumerate(shares):
        beside = [other.shares for other in shares if other.above == one.above and other.shares > 0]
        whole = used[one.above] if one.above >= 0 else 0
        use = used[row] / whole if whole else 0
        level[row] = np.inf if one.shares < 0 else 0 if not one.shares else (
            one.shares / sum(beside) / use if use else np.inf)
    num = sum(bool(one.user) for one in shares)
    ranked: list[tuple[int, int]] = []  # user and rank

    def walk(accounts, is_tied):
        rows = [row for row, one in enumerate(shares) if one.above in accounts]
        for value in sorted({level[row] for row in rows}, reverse=True):
            users = [row for row in rows if level[row] == value and shares[row].user]
            rank = ranked[-1][1] if is_tied else num - len(ranked)
            ranked.extend((row, rank) for row in users)
            below = [row for row in rows if level[row] == value and not shares[row].user]
            if below:
                walk(below, is_tied or bool(users))
            is_tied = False

    walk([row for row, one in enumerate(shares) if one.above < 0], False)
    return {(shares[row].account, shares[row].user): rank / num for row, rank in ranked}


def is_held(limits, problem, running, job) -> bool:
    """Whether a limit keeps a job of one part from starting beside those that run, as Slurm's documentation has it.

    Of limits of a kind the QOS of the partition goes before that of the job, and that before its association.
    """
    tasks = problem.tasks
    sizes = {"jobs": np.ones(len(tasks)), "cpu": tasks.cpu_milli, "mem": tasks.memory_mib, "gres/gpu": tasks.num_gpus}
    qualities = {one.name: one for one in limits.qualities}

    def order_of(task):
        own, part = (qualities.get(name) for name in (
            problem.qos[task], dict(limits.of_partition).get(problem.queue[task])))
        return [one for one in ([own, part] if own and own.is_first else [part, own]) if one]

    def chain_of(task):
        who = problem.account[task], problem.user[task]
        at = next((row for row, one in enumerate(limits.associations) if one[:2] == who), -1)
        while at >= 0:
            yield limits.associations[at]
            at = limits.associations[at].above

    def is_same(task, name):
        return name is None or getattr(problem, name)[task] == getattr(problem, name)[job]

    for what, size in sizes.items():
        checks = []  # what is allowed, and to whom together
        for kind, name in (("group", None), ("per_account", "account"), ("per_user", "user")):
            first = next((one for one in order_of(job) if what in dict(getattr(one, kind))), None)
            if first:
                checks.append((dict(getattr(first, kind))[what], lambda task, first=first, name=name: (
                    first in order_of(task) and is_same(task, name))))
            elif kind == "group":
                checks += [(dict(one.group)[what], lambda task, one=one: one in chain_of(task))
                           for one in chain_of(job) if what in dict(one.group)]
        if not any("jobs" in dict(one.per_account + one.per_user) for one in order_of(job)):
            checks += [(dict(one.own)[what], lambda task: is_same(task, "user") and is_same(task, "account"))
                       for one in [*chain_of(job)][:1] if what in dict(one.own)]
        if size[job] and any(size[[job, *filter(counts, running)]].sum() > most for most, counts in checks):
            return True
    return False


PLAIN = (earliest, shut_nodes, serve_all, rank_jobs)
