"""Who has used less than the share of the cluster that was agreed goes first: Slurm's fair tree."""

# A module, written by hand.

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...lab.arrays import Floats, Integers, Texts, Truths
from ...lab.frames import InputError, read_input
from ...lab.jit import by_reference, njit
from ..read.tables import Source

__all__ = ['Share', 'read_shares', 'FairShare', 'fair_share_of', 'charge', 'decay', 'rank_users']


class Share(NamedTuple):
    """A line of the tree: an account, or a user in it.

    Parameters
    ----------
    account, user : names; the user is empty for the account itself
    above : row of the account that it belongs to, -1 for the root
    shares : of what its account has; -1 for a user who has as much as the account itself ("parent")
    """

    account: str
    user: str
    above: int
    shares: int


ASKED = "give what `sshare -a -P` prints"


def read_shares(path: str | Path) -> tuple[Share, ...]:
    """Read who shares with whom from what `sshare -a -P` prints; an account stands a space deeper than the one above.

    Raises
    ------
    InputError : it is no such table, a number of shares is none, or it has no user
    """
    head, *lines = Source(str(path), read_input(path).content).text().splitlines() or [""]
    names = [name.strip() for name in head.split("|")]
    missing = {"Account", "User", "RawShares"} - set(names)
    if missing:
        raise InputError(f"no column {sorted(missing)[0]}", file=path, row=1, mend=ASKED)
    place = [names.index(name) for name in ("Account", "User", "RawShares")]
    shares: list[Share] = []
    above = [-1]  # by depth, the row of the account
    for row, line in enumerate(lines, 2):
        cells = line.split("|")
        if not line.strip():
            continue
        if len(cells) < len(names):
            raise InputError(f"{len(cells)} cells under {len(names)} columns", file=path, row=row, mend=ASKED)
        account, user, written = (cells[one] for one in place)
        depth = len(account) - len(account.lstrip(" "))
        is_usual = written.isdigit() and len(written) < 10 or (written == "parent" and user) or (
            not written and not depth)
        if not is_usual:
            what = "an account with the shares of the one above is not modelled" if written == "parent" else (
                f"{written!r:.40} is no number of shares")
            raise InputError(what, file=path, row=row, column="RawShares", value=written, mend="give a whole number")
        if depth >= len(above):
            raise InputError(f"{account.strip()} stands deeper than an account below the one before", file=path,
                             row=row, column="Account", value=account, mend=ASKED)
        shares.append(Share(account.strip(), user.strip(), above[depth],
                            -1 if written == "parent" else int(written or 0)))
        if not user:
            above[depth + 1:] = [len(shares) - 1]
    if not any(one.user for one in shares):
        raise InputError("no line has a user", file=path, column="User", mend="give -a to sshare, which asks for all users")
    return tuple(shares)


@by_reference
class FairShare(NamedTuple):
    """The tree as compiled code has it, and what has been used.

    Parameters
    ----------
    above : (shares,) as in `Share`
    part : (shares,) shares over those of all below the same account; inf for those of "parent"
    is_user : (shares,) whether a row is a user, no account
    path : (shares, depth) rows from the root down to each, then -1
    leaf, billing : (tasks,) row of the user whom a task is charged to, -1 if none; and how much for a second
    kept : share of what was used that counts a second later
    used, charged_s : (shares,) what has been used and counts; (tasks,) until when a task has been charged
    level, factor : (shares,) part over the part of what was used; factor of the priority, of users
    order : (shares,) rows, the first goes first; an account goes before whoever is below it
    """

    above: Integers
    part: Floats
    is_user: Truths
    path: Integers
    leaf: Integers
    billing: Floats
    kept: float
    used: Floats
    charged_s: Floats
    level: Floats
    factor: Floats
    order: Integers


def fair_share_of(shares: tuple[Share, ...], user: Texts, account: Texts | None, billing: Floats,
                  half_life_s: float) -> FairShare:
    """The tree when nothing has been used.

    Parameters
    ----------
    shares : as `read_shares` has them; none for a tree without anybody
    user, account : (tasks,) who runs a task, and for which account; for the first of a user's where it is unknown
    billing : (tasks,) what a task is charged for a second
    half_life_s : PriorityDecayHalfLife; 0 if what was used counts for ever

    Raises
    ------
    InputError : no task is of a user with shares
    """
    above = np.array([one.above for one in shares], np.int64)
    own = np.array([one.shares for one in shares], np.int64)
    of_all = np.bincount(above[above >= 0], np.maximum(own, 0)[above >= 0], len(shares))
    part = np.where(own < 0, np.inf, own / np.maximum(of_all[above], 1)) if shares else np.zeros(0)
    row: dict[tuple[str, str], int] = {}
    paths: list[list[int]] = []
    for place, one in enumerate(shares):
        paths.append([*(paths[one.above] if one.above >= 0 else []), place])
        if one.user:
            row[one.user, one.account] = place
            row.setdefault((one.user, ""), place)
    path = np.full((len(paths), 1 + max(map(len, paths), default=0)), -1)
    for place, rows in enumerate(paths):
        path[place, :len(rows)] = rows
    accounts = [""] * len(user) if account is None else account.tolist()
    leaf = np.array([row.get(key, -1) for key in zip(user.tolist(), accounts, strict=True)], np.int64)
    if shares and len(leaf) and (leaf < 0).all():
        raise InputError(f"no task is of a user with shares: {user[0]!r:.60} of account {accounts[0]!r:.60} has none",
                         mend="give the shares of this cluster, or read jobs with their users and accounts")
    kept = 1 - 0.693 / half_life_s if half_life_s > 0 else 1.0
    is_user = np.array([bool(one.user) for one in shares], np.bool_)
    return FairShare(
        above, part, is_user, path, leaf, billing, kept, np.zeros(len(shares)), np.full(len(user), -np.inf),
        np.zeros(len(shares)), np.zeros(len(shares)), np.arange(len(paths)))


@njit(cache=True)
def charge(fair: FairShare, task: int, start_s: float, until_s: float) -> None:
    """Charge a user and all accounts above for a task that has run until now (`_apply_new_usage`).

    Parameters
    ----------
    fair, task : the tree, and the row of the task
    start_s, until_s : since when the task runs, and until when it is charged
    """
    span_s = until_s - max(start_s, fair.charged_s[task])
    one = fair.leaf[task]
    if span_s <= 0 or one < 0:
        return
    fair.charged_s[task] = until_s
    used = span_s * fair.kept**span_s * fair.billing[task]
    while one >= 0:
        fair.used[one] += used
        one = fair.above[one]


@njit(cache=True)
def decay(fair: FairShare, span_s: float) -> None:
    """Let what has been used count less after a span (`_apply_decay`).

    Parameters
    ----------
    fair, span_s : the tree, and how long the span is
    """
    for one in range(len(fair.used)):
        fair.used[one] *= fair.kept**span_s


@njit(cache=True)
def goes_before(fair: FairShare, one: int, other: int) -> bool:
    """Whether a row goes before another: the levels from the root down decide.

    Accounts with the same level count as one, and a user goes before an account with the same.
    """
    for depth in range(fair.path.shape[1]):
        own = fair.path[one, depth]
        its = fair.path[other, depth]
        if own < 0 or its < 0:
            return bool(its >= 0 or (own < 0 and fair.is_user[one] and not fair.is_user[other]))
        if fair.level[own] != fair.level[its]:
            return bool(fair.level[own] > fair.level[its])
    return False


@njit(cache=True)
def rank_users(fair: FairShare) -> None:
    """Factor of each user by the fair tree (`fair_tree.c`): the rank from the last one on, over the number of users.

    They are in the order of before, so few have to move.
    """
    for one in range(len(fair.level)):
        above = fair.above[one]
        part = 0.0
        if above >= 0 and fair.used[above] > 0:
            part = fair.used[one] / fair.used[above]
        fair.level[one] = fair.part[one] if fair.part[one] == 0 or fair.part[one] == np.inf else (
            np.inf if part == 0 else fair.part[one] / part)
    order = fair.order
    for n in range(1, len(order)):
        row = order[n]
        at = n
        while at > 0 and goes_before(fair, row, order[at - 1]):
            order[at] = order[at - 1]
            at -= 1
        order[at] = row
    num_users = fair.is_user.sum()
    rank = left = num_users
    before = np.full(fair.path.shape[1] + 1, -1)  # by depth, the row before among those that are sorted together
    is_tied = np.zeros(fair.path.shape[1] + 1, np.bool_)  # whether the first of these has the rank of a user above
    for row in order:
        depth = (fair.path[row] >= 0).sum()
        last = before[depth]
        tied = is_tied[depth] if last < 0 else fair.level[last] == fair.level[row]
        before[depth] = row
        if fair.is_user[row]:
            rank = rank if tied else left
            left -= 1
            fair.factor[row] = rank / num_users
        elif last < 0 or not tied or fair.is_user[last]:  # else one account with the last
            before[depth + 1] = -1
            is_tied[depth + 1] = tied
