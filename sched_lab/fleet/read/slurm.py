"""What `scontrol`, `sinfo`, `squeue` and `sacct` print, from 22.05 to 25, as nodes and timed tasks."""

# A module, written by hand.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...lab.arrays import Integers
from ...lab.frames import InputError
from .dates import seconds_in
from .kubernetes import instances_on_one
from .objects import as_json, dig, objects_at, text_at
from .states import CANCELLED, OVER, RUNS, WAITS, fate_of
from .tables import (
    UNKNOWN,
    WAITING,
    Format,
    Ledger,
    ReadOptions,
    Source,
    milli_of_profile,
    note_rows,
)

__all__ = ['FORMATS', 'read_slurm']

MOST_HOSTS = 100_000
MOST_ROWS = 1_000_000  # of the jobs of a file, on each of their nodes
WHOLE = r"[0-9]{1,15}"
NO_HOSTS = {*UNKNOWN, "(null)", "none assigned"}
BETWEEN_COMMAS = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")  # those in brackets stay
BRACKET = re.compile(r"\[([^\[\]]*)\]")


def numbers_in_ranges(written: str) -> list[str]:
    """Numbers of `01-03,7`, as they are written; with a step, as in `1-9:2`, every second."""
    numbers: list[str] = []
    for part in written.split(","):
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part.strip())
        if found is None:
            return []
        last = int(found[2] or found[1])
        steps = range(int(found[1]), last + 1, int(found[3] or 1) or 1)
        if len(steps) + len(numbers) > MOST_HOSTS:
            return []
        numbers += [str(number).zfill(len(found[1])) for number in steps]
    return numbers


def hosts_in(written: str) -> list[str]:
    """Hosts of a list; empty if there are none, or if it is no list."""
    if written.strip().lower() in NO_HOSTS:
        return []
    names = BETWEEN_COMMAS.findall(written.strip())[::-1]
    done: list[str] = []
    while names:
        name = names.pop()
        found = BRACKET.search(name)
        if found is None:
            if "[" in name or "]" in name:
                return []
            done.append(name.strip())
            continue
        numbers = numbers_in_ranges(found[1])
        if not numbers or len(done) + len(names) + len(numbers) > MOST_HOSTS:
            return []
        names += [name[:found.start()] + one + name[found.end():] for one in reversed(numbers)]
    return [name for name in done if name]


class Gres(NamedTuple):
    """Generic resources of one type.

    Parameters
    ----------
    kind : gpu, shard or mps
    type : as Slurm calls it, such as `a100` or `a100_1g.5gb`; empty if there is none
    number : how many
    gpu_list : numbers of the GPUs, as `0-3`; empty if unknown
    """

    kind: str
    type: str
    number: int
    gpu_list: str = ""

    @property
    def profile(self) -> str:
        """Profile of instances that the type names; empty if it names none."""
        found = re.search(r"(\d+g\.\d+gb(?:\.\w+)?)$", self.type.lower())
        return found[1] if found and milli_of_profile(found[1]) else ""

    @property
    def gpu_model(self) -> str:
        """The type without the profile of instances."""
        profile = self.profile
        return self.type[:-len(profile)].rstrip("_.-") if profile else self.type


# a generic resource by the number that old accounts have in place of its name
PLUGINS = {str(sum(ord(letter) << 8 * (place % 4) for place, letter in enumerate(name))): name
           for name in ("gpu", "shard", "mps")}
NUMBERED = re.compile(r"(?<![\w:=.])(\d{6,10})(?=:\d)")  # 7696487:4 is gpu:4
GRES = re.compile(r"(?<![\w.-])(?:gres[/:])?(gpu|shard|mps)(?::(?!\d+(?:[,(\s]|$))([\w.+-]+))?"
                  r"(?:[:=](\d{1,12})([kKmM]?))?(?:\(([^()]*)\))?(?=[,\s]|$)")


def gres_in(written: str) -> list[Gres]:
    """Generic resources of a text; of a sum over types, what the types leave of it."""
    found = []
    for kind, model, number, unit, place in GRES.findall(written):
        count = int(number or 1) * {"k": 1024, "m": 1024**2}.get(unit.lower(), 1)
        indices = re.search(r"IDX:([\d,-]+)", place)
        numbers = numbers_in_ranges(indices[1].strip(",")) if indices else []
        found.append(Gres(kind, model, count, "-".join(numbers)))
    if "=" not in written:
        return found
    typed = Counter[str]()
    for one in found:
        typed[one.kind] += one.number if one.type else 0
    return [one if one.type else one._replace(number=one.number - typed[one.kind])
            for one in found if one.number > (0 if one.type else typed[one.kind])]


def memory_in(written: str) -> int | None:
    """MiB of the memory in a list of trackable resources, such as `cpu=4,mem=62.50G`."""
    found = re.search(r"(?:^|,)mem=(\d+(?:\.\d*)?)([KMGTP]?)", written)
    if found is None:
        return None
    power = {"K": -1, "": 0, "M": 0, "G": 1, "T": 2, "P": 3}[found[2]]
    return int(-(-min(float(found[1]) * 1024.0**power, 2.0**60) // 1))  # beyond any memory


def number_at(value: Any, *path: str) -> float | None:
    """Number at the end of a path; None if it is not set, infinite or none."""
    found = dig(value, *path)
    if isinstance(found, dict):
        is_set = found.get("set") is True and found.get("infinite") is not True
        found = found.get("number") if is_set else None
    if isinstance(found, str) and re.fullmatch(WHOLE, found):
        found = int(found)
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return found if is_number and abs(found) < 2**53 else None


def words_at(value: Any, *path: str) -> list[str]:
    """Words at the end of a path, be they a list or one text, in capitals."""
    found = dig(value, *path)
    if isinstance(found, dict):
        found = found.get("current")
    words = found if isinstance(found, list) else [found]
    return [word.upper() for word in words if isinstance(word, str) and word]


DRAIN, DOWN = "drain", "down"
CLOSED = {  # words of a node's state, and the signs that stand for some behind another one
    **dict.fromkeys(("DOWN", "ERROR", "FUTURE"), DOWN),
    **dict.fromkeys(("DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "INVAL", "INVALID_REG", "MAINT", "MAINTENANCE",
                     "$", "NOT_RESPONDING", "*", "POWERING_DOWN", "%", "REBOOT_ISSUED", "^", "UNKNOWN"), DRAIN)}


def closed_by(state: str) -> tuple[str, str]:
    """What in the state of a node keeps jobs away, and whether it is drained or down; empty if it is open.

    As `slurmctld` keeps its list of available nodes (`make_node_avail` and `node_state_string` of 26.11): one that is
    powered down to save power is among them, it starts when a job comes.
    """
    found = [(word, CLOSED[word]) for word in re.findall(r"[A-Z_]+|[*%$^]", state.upper()) if word in CLOSED]
    return min(found, key=lambda one: one[1] != DOWN, default=("", ""))


def features_in(value: Any) -> list[str]:
    """Features of a node: a list, or a text with commas."""
    words = value if isinstance(value, list) else str(value or "").split(",")
    return [word.strip() for word in words if isinstance(word, str) and word.strip()]


def node_row(record: Any, dump: Records, place: tuple[str, int]) -> dict[str, Any]:
    """Row of a node of `scontrol show nodes` or of the `sinfo` of 22.05."""
    closed, _ = closed_by("+".join([*words_at(record, "state"), *words_at(record, "state_flags")]))
    cpus = number_at(record, "effective_cpus") or number_at(record, "cpus")
    memory = number_at(record, "real_memory")
    kept = number_at(record, "specialized_memory") or 0
    features = features_in(dig(record, "features")) or features_in(dig(record, "active_features"))
    labels = [*(f"partition/{name}" for name in features_in(dig(record, "partitions"))),
              *(f"feature/{name}" for name in features)]
    return gpu_columns(text_at(record, "gres"), text_at(record, "name"), dump, place) | {
        "cpu_milli": None if cpus is None else int(1000 * cpus),
        "memory_mib": None if memory is None else int(max(memory - kept, 0)),
        "labels": dict.fromkeys(labels, "true"),
        "taints": as_json([{"key": "slurm/state", "value": closed, "effect": "NoSchedule"}]
                          ) if closed else ""}


class Records:
    """What was learnt of the nodes on the way, and where it is noted what was done with a record."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.parts: dict[str, Mapping[str, float]] = {}  # into which a GPU of a node may be shared
        self.labels: set[str] = set()

    def note(self, place: tuple[str, int], what: str, reason: str, count: int = 1) -> None:
        """Write into the ledger what was done with a record, or with so many rows."""
        self.ledger.note(*place, what, reason, count)


def gpu_columns(written: str, name: str, dump: Records, place: tuple[str, int]) -> dict[str, Any]:
    """Name of a node, and columns of its GPUs; instances are counted by those that fit on one."""
    gres = gres_in(written)
    models: dict[str, int] = {}
    cut = Counter[str]()
    for one in (one for one in gres if one.kind == "gpu"):
        on_one = instances_on_one(one.profile) if one.profile else 1
        models[one.gpu_model] = models.get(one.gpu_model, 0) - (-one.number // on_one)
        if one.profile:
            cut[f"gpu:{one.profile}"] += one.number
    total = sum(models.values())
    named = [model for model in models if model]
    dump.parts[name] = {one.kind: one.number / total for one in gres if one.kind != "gpu" and total}
    if cut:
        dump.note(place, "interpreted", "GPUs cut into instances are counted by those that fit")
        cut["whole"] = sum(one.number for one in gres if one.kind == "gpu" and not one.profile)
    if len(named) > 1:
        dump.note(place, "interpreted", "the node has GPUs of several models, named together")
    if total and not named:
        dump.note(place, "interpreted", "the GPUs of the node have no type, their model is unknown")
    return {"name": name, "gpu_model": "+".join(named), "num_gpus": total,
            "devices": as_json(cut) if cut else ""}


def group_rows(record: Any, dump: Records, place: tuple[str, int]) -> list[dict[str, Any]]:
    """Rows of the nodes of one line of the grouped `sinfo --json`."""
    rows = []
    for what in ("cpus", "memory"):
        if number_at(record, what, "minimum") != number_at(record, what, "maximum"):
            dump.note(place, "interpreted", f"nodes of a group differ in {what}: the least")
    names = features_in(dig(record, "nodes", "nodes"))
    for name in chain.from_iterable(map(hosts_in, names)):
        rows.append(node_row({
            "name": name, "gres": text_at(record, "gres", "total"),
            "state": dig(record, "node", "state"), "features": dig(record, "features", "total"),
            "cpus": dig(record, "cpus", "minimum"), "real_memory": dig(record, "memory", "minimum"),
            "partitions": [text_at(record, "partition", "name")]}, dump, place))
    return rows


def node_table(documents: Sequence[tuple[str, Any]], dump: Records) -> pd.DataFrame:
    """Rows of nodes of all files."""
    rows: dict[str, tuple[int, dict[str, Any]]] = {}
    for file, document in documents:
        found = [(number, node_row(record, dump, (file, number)))
                 for number, record in enumerate(objects_at(document, "nodes"), 1)]
        found += [(number, row) for number, record in enumerate(objects_at(document, "sinfo"), 1)
                  for row in group_rows(record, dump, (file, number))]
        for number, row in found:
            _, before = rows.setdefault(row["name"], (number, row))
            if before | {"labels": row["labels"]} == row:
                before["labels"] = before["labels"] | row["labels"]
            else:
                dump.note((file, number), "dropped", "the node is there already, and differs")
    for _, row in rows.values():
        dump.labels |= set(row["labels"])
        row["labels"] = as_json(row["labels"])
    return pd.DataFrame([row for _, row in rows.values()], [number for number, _ in rows.values()])


def first_of(record: Any, *paths: tuple[str, ...]) -> float | None:
    """Number at the end of the first path that has one, and not 0."""
    found = (number_at(record, *path) for path in paths)
    return next((number for number in found if number), None)


def name_of(record: Any) -> str:
    """Number of a job, with its place in an array or in a heterogeneous job.

    All waiting jobs of an array are one record, as they are one line of `sacct`: `12_[1-3%2]`.
    """
    array, het, job = (first_of(record, (f"{kind}job_id",), (kind.rstrip("_"), "job_id"))
                       for kind in ("array_", "het_", ""))
    numbers = (number_at(record, *path) for path in (("array_task_id",), ("array", "task_id")))
    task = next((number for number in numbers if number is not None), None)
    waiting = text_at(record, "array_task_string") or text_at(record, "array", "task")
    if array and task is not None:
        return f"{array:.0f}_{task:.0f}"
    if het:
        offset = first_of(record, ("het_job_offset",), ("het", "job_offset"))
        return f"{het:.0f}+{offset or 0:.0f}"
    if numbers_in_ranges(waiting.partition("%")[0]):
        return f"{array or job or 0:.0f}_[{waiting}]"
    return "" if job is None else f"{job:.0f}"


def state_of(words: Sequence[str], has_run: bool, has_ended: bool) -> str:
    """Whether a job waits, runs or is over.

    Parameters
    ----------
    words : of its state, a base and marks such as COMPLETING
    has_run, has_ended : whether a start, and an end, are known; they decide if no word is known
    """
    bases = {word.partition(" ")[0].rstrip("+") for word in words}
    fates = {fate_of(word) for word in bases} - {""}
    if bases & {"RUNNING", "SUSPENDED"}:
        return RUNS
    is_attempt = bases == {"REQUEUED"} and has_run and has_ended
    if is_attempt or fates & {OVER, CANCELLED} or not fates and has_ended:
        return OVER
    return WAITS if WAITS in fates or not fates and not has_run else RUNS


ELIGIBLE_LATER = ("the job might start only after its submission (a dependency, a hold, or a time of "
                  "begin): it comes to the queue then")
NOT_ELIGIBLE = ("the job waits, and for a dependency, a hold or a time of begin: taken to wait for room "
                "all the same")
TIMES = ("submit_s", "eligible_s", "start_s", "end_s")


def lives_of(facts: pd.DataFrame, file: str, ledger: Ledger) -> pd.DataFrame:
    """When jobs came, started and ended, and which wait; those that never ran are left out.

    A job comes into the queue when it may start, which is its submission but for dependencies, holds
    and times of begin.

    Parameters
    ----------
    facts : `TIMES`; `words` of the state in capitals; `has_run`, whether there is a start on some
        node; `has_nothing`, whether neither a node nor a resource was given out; `says_eligible`,
        whether there is a field for the time from which it may start
    """
    times = facts[list(TIMES)].astype("Float64")
    has_run = facts["has_run"].astype(bool)
    keys = list(zip(facts["words"], has_run, times["end_s"].notna(), strict=True))
    found = {key: state_of(*key) for key in set(keys)}
    states = pd.Series([found[key] for key in keys], facts.index, dtype="object")

    def note(is_so: pd.Series, what: str, reason: str) -> None:
        note_rows(ledger, file, facts.index[is_so], what, reason)

    eligible = times.pop("eligible_s")
    latest = times["start_s"].where(states != WAITS).fillna(np.inf)
    is_later = ((eligible > times["submit_s"]) & (eligible <= latest)).fillna(False)
    note(is_later, "interpreted", ELIGIBLE_LATER)
    times["submit_s"] = times["submit_s"].mask(is_later, eligible)
    note((states == WAITS) & eligible.isna() & facts["says_eligible"].astype(bool), "interpreted",
         NOT_ELIGIBLE)
    is_requeued = facts["words"].map(lambda words: words[:1] == ("REQUEUED",)).astype(bool)
    note(is_requeued & (states == OVER), "interpreted",
         "put back into the queue: an attempt, which is over")
    note((states == RUNS) & times["end_s"].notna(), "interpreted",
         "the job runs, and the end of its time limit is not its end")
    times.loc[states == WAITS, ["start_s", "end_s"]] = pd.NA
    times.loc[states == RUNS, "end_s"] = pd.NA
    is_instant = times["start_s"].eq(times["end_s"]).fillna(False) & facts["has_nothing"].astype(bool)
    never = (states == OVER) & (~has_run | is_instant)
    note(never, "dropped", "the job ended without a start")
    lost = (states == OVER) & has_run & times["end_s"].isna()
    note(lost, "dropped", "the job is over, and nothing says since when")
    return times.assign(state=np.where(states == WAITS, WAITING, ""))[~never & ~lost]


TIME_FIELDS = {
    "submit_s": ("submit_time", "submission"), "eligible_s": ("eligible_time", "eligible"),
    "start_s": ("start_time", "start"), "end_s": ("end_time", "end")}


def facts_of(record: Any) -> dict[str, Any]:
    """What a record says of the life of a job, as `lives_of` takes it; a time of 0 is unknown."""
    times = {name: first_of(record, (flat,), ("time", nested)) for name, (flat, nested) in TIME_FIELDS.items()}
    has_nothing = not (text_at(record, "nodes") or allocated(record))
    return {**times, "words": tuple(words_at(record, "job_state") or words_at(record, "state")),
            "has_run": times["start_s"] is not None, "has_nothing": has_nothing,
            "says_eligible": True}


def tres_text(record: Any, which: str) -> str:
    """Trackable resources of a record of `sacct --json` as a text like that of `squeue`."""
    parts = []
    for one in objects_at(record, "tres", which):
        kind = text_at(one, "type")
        name = f"{kind}/{text_at(one, 'name')}" if text_at(one, "name") else kind
        unit = "M" if kind == "mem" else ""
        parts.append(f"{name}={number_at(one, 'count') or 0:.0f}{unit}")
    return ",".join(parts)


def gres_detail(record: Any) -> list[str]:
    """Generic resources that a job was given, a text for each of its nodes; none if nothing says so."""
    detail = dig(record, "gres_detail")
    return [text for text in detail if isinstance(text, str)] if isinstance(detail, list) else []


def allocated(record: Any) -> str:
    """What a job was given, on all its nodes."""
    return (",".join(gres_detail(record)) or text_at(record, "tres_alloc_str")
            or tres_text(record, "allocated"))


class Demand(NamedTuple):
    """What a job has or asks for of one kind of generic resources on one node.

    Parameters
    ----------
    part : number of the node among those of the job
    gres : None if it has none there
    cpus, memory_mib : on the node; 0 but for the first kind there, None if unknown
    """

    part: int
    gres: Gres | None
    cpus: float | None
    memory_mib: float | None


def demands_on(gres: Iterable[Sequence[Gres]], cpus: Iterable[float | None],
               memory_mib: Iterable[float | None]) -> list[Demand]:
    """Demands of a job, of what it has on each of its nodes."""
    return [Demand(part, one, 0 if turn else cpu, 0 if turn else memory)
            for part, (kinds, cpu, memory) in enumerate(zip(gres, cpus, memory_mib, strict=True))
            for turn, one in enumerate(kinds or (None,))]


def split(total: float | None, parts: int) -> list[float | None]:
    """A number in so many parts, as even as whole numbers can be."""
    if total is None:
        return [None] * parts
    if parts == 1:
        return [total]
    low, more = divmod(int(total), parts)
    return [low + (number < more) for number in range(parts)]


def split_gres(gres: Sequence[Gres], parts: int) -> list[tuple[Gres, ...]]:
    """Generic resources of a job on each of its nodes, if only their sum is known."""
    if parts == 1:
        return [tuple(gres)]
    shares = [(one.kind, one.type, split(one.number, parts)) for one in gres]
    return [tuple(Gres(kind, type, int(share[part] or 0)) for kind, type, share in shares if share[part])
            for part in range(parts)]


def gres_by_node(record: Any, parts: int, dump: Records,
                 place: tuple[str, int]) -> list[tuple[Gres, ...]]:
    """Generic resources of a job on each of its nodes, from the first place that knows."""
    on_each = [tuple(gres_in(text)) for text in gres_detail(record)]
    if len(on_each) == parts and any(on_each):
        return on_each
    if gres := gres_in(allocated(record)):
        return split_gres(gres, parts)
    if gres := gres_in(text_at(record, "tres_per_node")):
        return [tuple(gres)] * parts
    tasks = number_at(record, "tasks") or 1
    per_task = [one._replace(number=int(one.number * tasks))
                for one in gres_in(text_at(record, "tres_per_task"))]
    asked = text_at(record, "tres_req_str") or tres_text(record, "requested")
    gres = gres_in(text_at(record, "tres_per_job")) or per_task or gres_in(asked)
    if not gres and (per_socket := gres_in(text_at(record, "tres_per_socket"))):
        dump.note(place, "interpreted", "GPUs asked for by socket are taken as one socket a node")
        return [tuple(per_socket)] * parts
    return split_gres(gres, parts)


NO_LIST = "the nodes of the job are no list such as n[1-2],m: where it ran is unknown"


def check_rows(count: int, file: str, row: int) -> None:
    """Refuse jobs that would be too many rows, one for each of their nodes.

    Raises
    ------
    InputError : naming the row that goes beyond
    """
    if count > MOST_ROWS:
        raise InputError(f"up to here, jobs on each of their nodes are {count:,} rows", file=file,
                         row=row, mend=f"give jobs of a shorter time, at most {MOST_ROWS:,} rows")


def demands_of(record: Any, hosts: Sequence[str], dump: Records,
               place: tuple[str, int]) -> list[Demand]:
    """What a job has or asks for, node by node."""
    parts = len(hosts)
    tres = (text_at(record, "tres_alloc_str") or text_at(record, "tres_req_str")
            or tres_text(record, "allocated") or tres_text(record, "requested"))
    counted = re.search(r"(?:^|,)cpu=(\d{1,15})(?!\d)", tres)
    cpus = int(counted[1]) if counted else first_of(record, ("cpus",), ("required", "CPUs"))
    memory: float | None = memory_in(tres)
    if memory is None:
        per_node, per_cpu = (first_of(record, (name,), ("required", name))
                             for name in ("memory_per_node", "memory_per_cpu"))
        memory = per_node * parts if per_node else per_cpu * cpus if per_cpu and cpus else None
    given = {text_at(one, "name") or text_at(one, "nodename"): one for one in (
        objects_at(record, "job_resources", "nodes", "allocation")
        or objects_at(record, "job_resources", "allocated_nodes"))}
    own = [given.get(host) for host in hosts]
    return demands_on(
        gres_by_node(record, parts, dump, place),
        [first_of(one, ("cpus", "count"), ("cpus",)) or each
         for one, each in zip(own, split(cpus, parts), strict=True)],
        [first_of(one, ("memory", "allocated"), ("memory_allocated",)) or each
         for one, each in zip(own, split(memory, parts), strict=True)])


def constraints_of(record: Any, dump: Records, place: tuple[str, int]) -> str:
    """What the nodes of a job must have, as JSON; empty if nothing."""
    partitions = [f"partition/{name.strip()}" for name in text_at(record, "partition").split(",")]
    known = [name for name in partitions if name in dump.labels]
    wanted = re.split(r"[&,]", text_at(record, "features")) if text_at(record, "features") else []
    if any(re.search(r"[^\w.:-]", name) for name in wanted):
        dump.note(place, "extra column", "features with more than & are not honoured")
        wanted = []
    rules = [{"key": f"feature/{name}", "operator": "Exists", "values": []} for name in wanted
             if f"feature/{name}" in dump.labels]
    for name, operator in (("excluded_nodes", "NotIn"), ("required_nodes", "In")):
        if hosts := hosts_in(text_at(record, name)):
            rules.append({"key": "metadata.name", "operator": operator, "values": hosts})
    terms = [[{"key": name, "operator": "Exists", "values": []}, *rules] for name in known]
    return as_json({"affinity": terms or [rules]}) if terms or rules else ""


class Share(NamedTuple):
    """So many GPUs of which a job has the same share each."""

    num_gpus: int
    gpu_milli: int
    mig_profile: str = ""
    gpu_list: str = ""
    gpu_models: str = ""


def share_of(gres: Gres, node: str, dump: Records, place: tuple[str, int], count: int) -> Share:
    """What generic resources on a node are in GPUs and thousandths of them, for so many rows."""
    if gres.kind == "gpu":
        return Share(gres.number, milli_of_profile(gres.profile) or 1000, gres.profile,
                     gres.gpu_list, gres.gpu_model)
    known = [parts[gres.kind] for name, parts in dump.parts.items()
             if gres.kind in parts and node in ("", name)]
    parts = known[0] if known else {"mps": 100.0}.get(gres.kind, 1.0)
    if not known:
        dump.note(place, "interpreted", f"{gres.kind} without a node that has it, taken as "
                  f"{parts:.0f} to a GPU", count)
    milli = int(-(-1000 * gres.number // parts))
    gpus = max(-(-milli // 1000), 1)
    return Share(gpus, min(-(-milli // gpus), 1000), "", gres.gpu_list, gres.gpu_model)


def models_asked(asked: Sequence[Gres]) -> str | None:
    """Model of GPUs that a request names, empty for any; None if it asks for none."""
    models = dict.fromkeys(one.gpu_model for one in asked if one.kind == "gpu")
    return "|".join(filter(None, models)) if models else None


ASKED = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_req_str")


def job_of(record: Any, is_waiting: bool, dump: Records, place: tuple[str, int]) -> dict[str, Any]:
    """A job of a record: who, what it may run on, its hosts and what it has or asks for there."""
    written = "" if is_waiting else text_at(record, "nodes")
    hosts = hosts_in(written)
    if not hosts and written.strip().lower() not in NO_HOSTS:
        dump.note(place, "interpreted", NO_LIST)
    asked = first_of(record, ("node_count",), ("allocation_nodes",)) or 1
    hosts = hosts or [""] * int(min(max(asked, 1), MOST_HOSTS))
    priority = number_at(record, "priority")
    said = dig(record, "priority")
    if priority is None and not (said is None or isinstance(said, dict)):
        dump.note(place, "interpreted", "priority is no number below 2**53, taken as unknown")
    minutes = first_of(record, ("time_limit",), ("time", "limit"))
    wish = ",".join([*(text_at(record, name) for name in ASKED), tres_text(record, "requested")])
    return {
        "name": name_of(record), "user": text_at(record, "user_name") or text_at(record, "user")
        or text_at(record, "association", "user"), "queue": text_at(record, "partition"),
        "account": text_at(record, "account") or text_at(record, "association", "account"),
        "qos": text_at(record, "qos"), "priority": priority, "walltime_s": 60 * minutes if minutes and minutes > 0 else None,
        "fixed": "its Requeue is 0" if dig(record, "requeue") is False else "",
        "constraints": constraints_of(record, dump, place), "wish": models_asked(gres_in(wish)),
        "hosts": hosts, "demands": demands_of(record, hosts, dump, place)}


USED = {
    "account", "allocation_nodes", "array", "array_job_id", "array_task_id", "array_task_string",
    "association", "cpus", "eligible_time", "end_time", "excluded_nodes", "features",
    "gres_detail", "het", "het_job_id", "het_job_offset", "job_id", "job_resources", "job_state", "memory_per_cpu",
    "memory_per_node", "node_count", "nodes", "partition", "priority", "qos", "requeue", "required",
    "required_nodes", "start_time", "state", "submit_time", "tasks", "time", "time_limit", "tres",
    "tres_alloc_str", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task",
    "tres_req_str", "user", "user_name"}


def record_table(file: str, document: Any, dump: Records) -> pd.DataFrame:
    """Rows of the jobs of a file in JSON."""
    records = dict(enumerate(objects_at(document, "jobs"), 1))
    unread = {name for record in records.values() for name in record} - USED
    dump.ledger.note(file, None, "extra column", f"fields of jobs: {', '.join(sorted(unread))}",
                     len(unread))
    if not records:
        return pd.DataFrame()
    facts = pd.DataFrame([facts_of(record) for record in records.values()], list(records),
                         dtype="object")
    times = lives_of(facts, file, dump.ledger)
    jobs: list[dict[str, Any]] = []
    count = 0
    for row, state in zip(times.index.tolist(), times["state"], strict=True):
        jobs.append(job_of(records[row], state == WAITING, dump, (file, row)))
        count += len(jobs[-1]["demands"])
        check_rows(count, file, row)
    return spread(pd.DataFrame(jobs, times.index, dtype="object").join(times), file, dump)


PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:.-]*)=(\S*)")


def settings_in(text: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Settings of a `slurm.conf` or of `scontrol show config`, and lines of nodes and partitions.

    Names are in small letters. A line `NodeName=DEFAULT` is the default of those that follow.
    """
    settings: dict[str, str] = {}
    lines: list[dict[str, str]] = []
    usual: dict[str, dict[str, str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        line = line.split("#")[0].strip()
        pairs = {name.lower(): value for name, value in PAIR.findall(line)}
        kind = next(iter(pairs), "")
        if kind in ("nodename", "partitionname"):
            pairs = usual.get(kind, {}) | pairs
            if pairs[kind].upper() == "DEFAULT":
                usual[kind] = pairs
            else:
                lines.append(pairs)
        elif found := re.fullmatch(r"(\w+)\s*=\s*(.*)", line):
            settings.setdefault(found[1].lower(), found[2].strip())
    return settings, lines


def nodes_of_lines(lines: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Nodes of a `slurm.conf` as records of `scontrol show nodes --json`."""
    names = [(line, host) for line in lines if "nodename" in line for host in hosts_in(line["nodename"])]
    parts = [(line["partitionname"], {*hosts_in(line.get("nodes", ""))}, line.get("nodes", "").upper())
             for line in lines if "partitionname" in line]
    return [{
        "name": host, "gres": line.get("gres", ""), "cpus": line.get("cputot") or cpus_of(line),
        "real_memory": line.get("realmemory", "1"), "specialized_memory": line.get("memspeclimit", ""),
        "features": line.get("features") or line.get("feature") or line.get("availablefeatures") or "",
        "state": re.split(r"[+]", line.get("state", "").upper().replace("UNKNOWN", "")),
        "partitions": [name for name, hosts, all_of in parts if all_of == "ALL" or host in hosts]
        or [part for part in line.get("partitions", "").split(",") if part]}
        for line, host in names]


def cpus_of(line: Mapping[str, str]) -> int:
    """CPUs of a node of a `slurm.conf`: CPUs, or sockets times cores times threads."""
    if "cpus" in line or "procs" in line:
        return int(number_at(line, "cpus") or number_at(line, "procs") or 1)
    sockets = number_at(line, "sockets") or number_at(line, "boards") or 1
    return int(sockets * (number_at(line, "corespersocket") or 1) * (number_at(line, "threadspercore") or 1))


TEXT_FIELDS = {
    "JobState": "job_state", "Partition": "partition", "NodeList": "nodes", "TRES": "tres_alloc_str",
    "ReqTRES": "tres_req_str", "AllocTRES": "tres_alloc_str", "TresPerNode": "tres_per_node",
    "TresPerJob": "tres_per_job", "TresPerTask": "tres_per_task", "TresPerSocket": "tres_per_socket",
    "Features": "features", "ReqNodeList": "required_nodes", "ExcNodeList": "excluded_nodes",
    "ArrayTaskId": "array_task_id", "JobId": "job_id", "ArrayJobId": "array_job_id",
    "HetJobId": "het_job_id", "HetJobOffset": "het_job_offset", "Priority": "priority",
    "Account": "account", "QOS": "qos", "NumCPUs": "cpus", "NumTasks": "tasks", "NumNodes": "node_count"}
TEXT_TIMES = {"SubmitTime": "submit_time", "EligibleTime": "eligible_time", "StartTime": "start_time",
              "EndTime": "end_time"}


def jobs_of_text(source: Source, ledger: Ledger, options: ReadOptions) -> list[dict[str, Any]]:
    """Jobs of the text of `scontrol show job`, as records of its JSON."""
    found = [part for part in re.split(r"(?m)^\s*(?=JobId=)", source.text()) if part.startswith("JobId=")]
    cells = pd.DataFrame([dict(PAIR.findall(part)[::-1]) for part in found],
                         range(1, len(found) + 1), dtype="object").fillna("")
    unread = {str(name) for name in cells} - {*TEXT_FIELDS, *TEXT_TIMES, "UserId", "TimeLimit", "Requeue", "Nodes", "GRES"}
    ledger.note(source.name, None, "extra column", f"fields of jobs: {', '.join(sorted(unread))}", len(unread))
    times = {}
    for name, field in TEXT_TIMES.items():
        written = cells.get(name, pd.Series("", cells.index))
        times[field] = seconds_in(written.where(~written.isin(["Unknown", "N/A", "None"]), ""),
                                  source=source, ledger=ledger, options=options)
    records = []
    for number, cell in enumerate(cells.to_dict("records")):
        record = {TEXT_FIELDS[name]: "" if value in ("(null)", "N/A") else value
                  for name, value in cell.items() if name in TEXT_FIELDS and value}
        array = record.get("array_task_id", "")
        if array and not array.isdigit():
            record["array_task_string"] = record.pop("array_task_id")
        record["node_count"] = record.get("node_count", "").partition("-")[0]
        limit = seconds_of_limit(str(cell.get("TimeLimit", "")))
        detail = [gres for nodes, gres in re.findall(r"\sNodes=(\S+) .*? GRES=(\S*)", found[number])
                  for _ in hosts_in(nodes)]
        records.append(record | {
            "user_name": str(cell.get("UserId", "")).partition("(")[0], "gres_detail": detail,
            "requeue": str(cell.get("Requeue", "")) != "0",
            "time_limit": None if limit is None else limit / 60,
            **{field: None if pd.isna(column.iloc[number]) else float(column.iloc[number])
               for field, column in times.items()}})
    return records


def text_document(source: Source, ledger: Ledger, options: ReadOptions) -> dict[str, Any]:
    """Nodes and jobs of a text of `scontrol`, or nodes of a `slurm.conf`, as its JSON has them."""
    joined = re.sub(r"\n(?!\s*(?:NodeName|PartitionName)=)[ \t]+", " ", source.text())
    return {"nodes": nodes_of_lines(settings_in(joined)[1]),
            "jobs": jobs_of_text(source, ledger, options) if "JobId=" in source.text() else []}


def is_text_of_slurm(source: Source) -> bool:
    """Whether a file is a text of `scontrol show`, or a `slurm.conf`."""
    return bool(re.search(r"(?mi)^\s*(?:JobId|NodeName)=\S+\s", source.head(65536)))


def account_lines(source: Source, ledger: Ledger) -> pd.DataFrame:
    """Cells of `sacct -P`, indexed by line."""
    lines = source.text().splitlines()
    header = [name.strip() for name in lines[0].strip().strip("|").split("|")]
    if again := next((name for name in header if header.count(name) > 1), None):
        raise InputError("the header names this column twice", file=source.name, row=1,
                         column=again, mend="name each field of --format once")
    end = "|" if lines[0].rstrip().endswith("|") else ""
    rows = {number: line.removesuffix(end).split("|") for number, line in enumerate(lines[1:], 2)}
    good = {number: row for number, row in rows.items() if len(row) == len(header)}
    bad = [number for number, row in rows.items() if number not in good and any(row)]
    note_rows(ledger, source.name, bad, "dropped",
              "the line has another number of cells than the header")
    cells = pd.DataFrame(list(good.values()), list(good), header, dtype="object")
    text = f"\n{source.text()}\n"
    has_blanks = any(mark in text for mark in (" |", "| ", "\t|", "|\t", " \r", " \n", "\n "))
    return cells.apply(lambda column: column.str.strip()) if has_blanks and len(cells) else cells


ACCOUNT_FIELDS = {
    "JobID", "JobIDRaw", "Submit", "Eligible", "Start", "End", "State", "NNodes", "AllocNodes",
    "NodeList", "AllocTRES", "ReqTRES", "AllocCPUS", "NCPUS", "ReqCPUS", "User", "Account", "QOS", "Partition",
    "Priority", "AllocGRES", "ReqGRES", "Timelimit", "TimelimitRaw"}


LIMIT = re.compile(r"(?:(\d{1,6})-)?(\d{1,6})(?::(\d{1,2}))?(?::(\d{1,2}))?")
NO_LIMIT = {*UNKNOWN, "unlimited", "infinite", "partition_limit", "invalid"}


def seconds_of_limit(written: str) -> float | None:
    """Seconds of a limit of time as Slurm writes it; None if it is no such.

    With days the parts are hours, minutes and seconds, else minutes alone, minutes and seconds, or
    hours, minutes and seconds.
    """
    found = LIMIT.fullmatch(written.strip())
    if found is None:
        return None
    days, *rest = found.groups()
    parts = [int(part) for part in rest if part is not None]
    units = (3600, 60, 1) if days or len(parts) == 3 else (60, 1)
    seconds = sum(part * unit for part, unit in zip(parts, units, strict=False))
    return 86400 * int(days or 0) + seconds or None


def account_walltimes(cells: pd.DataFrame, source: Source, ledger: Ledger) -> pd.Series:
    """Limits of time of the jobs of `sacct -P`, seconds."""
    written = cells["TimelimitRaw"].where(cells["TimelimitRaw"] != "", cells["Timelimit"])
    known = {text: seconds_of_limit(text) for text in written.unique()}
    strange = written.map({text: found is None and text.lower() not in NO_LIMIT
                           for text, found in known.items()}).astype(bool)
    note_rows(ledger, source.name, cells.index[strange], "interpreted",
              "the limit of time is none such as 1-12:00:00: taken as unknown")
    return written.map(known).astype("Float64")


def jobs_only(cells: pd.DataFrame, source: Source, ledger: Ledger) -> pd.DataFrame:
    """Lines of jobs that started or wait, without their steps."""
    name = "JobID" if "JobID" in cells else "JobIDRaw"
    is_step = cells[name].str.contains(".", regex=False)
    note_rows(ledger, source.name, cells.index[is_step], "dropped", "the line is a step of a job")
    cells = cells[~is_step].rename(columns={name: "name"})
    if extra := [one for one in cells if one not in ACCOUNT_FIELDS | {"name"}]:
        ledger.note(source.name, 1, "extra column", ", ".join(map(str, extra)), len(extra))
    for one in ACCOUNT_FIELDS - set(cells):
        cells[one] = ""
    return cells


def account_facts(cells: pd.DataFrame, source: Source, ledger: Ledger,
                  options: ReadOptions) -> pd.DataFrame:
    """What `sacct -P` says of the lives of jobs, as `lives_of` takes it."""
    read = partial(seconds_in, source=source, ledger=ledger, options=options)
    facts = pd.DataFrame({
        f"{name.lower()}_s": read(cells[name].where(cells[name] != "None", ""))
        for name in ("Submit", "Eligible", "Start", "End")})
    has_no_node = cells["NodeList"].str.lower().isin(["none assigned", "none"])
    return facts.assign(
        words=cells["State"].str.upper().map(lambda text: (text,)),
        has_run=facts["start_s"].notna() & ~has_no_node,
        has_nothing=cells["AllocTRES"].eq("") & cells["NodeList"].eq(""),
        says_eligible=cells["Eligible"].ne(""))


def account_demands(cells: pd.DataFrame, source: Source, ledger: Ledger) -> pd.DataFrame:
    """Hosts of the jobs of `sacct -P`, what they have or ask for there, and the model they wish."""
    tres = cells["AllocTRES"].where(cells["AllocTRES"] != "", cells["ReqTRES"])
    for name in [name for name in ("AllocGRES", "ReqGRES") if cells[name].any()]:
        others = cells[name].str.replace(NUMBERED, lambda found: PLUGINS.get(found[1], found[1]),
                                         regex=True)
        strange = others.map(lambda text: bool(NUMBERED.search(text))).astype(bool)
        note_rows(ledger, source.name, cells.index[strange], "interpreted",
                  f"{name} names a generic resource by a number that is not known: not counted")
        tres = tres.where(tres.map(lambda text: bool(GRES.search(text))), tres + "," + others)
    gres = {text: gres_in(text) for text in {*tres, *cells["ReqTRES"]}}
    cpus = tres.str.extract(r"(?:^|,)cpu=(\d{1,15})(?!\d)")[0]
    for name in ("AllocCPUS", "NCPUS", "ReqCPUS"):
        cpus = cpus.where(cpus.notna() & ~cpus.isin(["", "0"]), cells[name])
    nodes = pd.to_numeric(cells["NNodes"].where(cells["NNodes"] != "", cells["AllocNodes"]),
                          errors="coerce").fillna(1).clip(1, MOST_HOSTS).astype(int)
    hosts = hosts_of(cells["NodeList"], source, ledger)
    places = list(zip(cells["NodeList"], nodes, strict=True))
    parts = np.array([len(hosts[text]) or count for text, count in places], np.int64)
    check_each(parts, cells.index, source.name)
    known = {(text, count): hosts[text] or [""] * count for text, count in set(places)}
    cpus = pd.to_numeric(cpus, errors="coerce").astype("object")
    asked = list(zip(tres, cpus.where(cpus.notna(), None), parts.tolist(), strict=True))
    demands = {}
    for text, cpu, count in set(asked):
        demands[text, cpu, count] = demands_on(split_gres(gres[text], count), split(cpu, count),
                                               split(memory_in(text), count))
    return pd.DataFrame({
        "wish": [models_asked(gres[text]) for text in cells["ReqTRES"]],
        "hosts": [known[place] for place in places],
        "demands": [demands[one] for one in asked]}, cells.index, dtype="object")


def account_table(source: Source, dump: Records, options: ReadOptions) -> pd.DataFrame:
    """Rows of the jobs of `sacct -P`."""
    cells = jobs_only(account_lines(source, dump.ledger), source, dump.ledger)
    times = lives_of(account_facts(cells, source, dump.ledger, options), source.name, dump.ledger)
    cells = cells.loc[times.index]
    cells["NodeList"] = cells["NodeList"].where(times["state"] != WAITING, "")
    is_whole = cells["Priority"].str.fullmatch(WHOLE)
    lost = ~is_whole & ~cells["Priority"].str.lower().isin(UNKNOWN)
    note_rows(dump.ledger, source.name, cells.index[lost], "interpreted",
              "column Priority: no whole number below 10^15, taken as unknown")
    jobs = account_demands(cells, source, dump.ledger).assign(
        name=cells["name"], user=cells["User"], account=cells["Account"], qos=cells["QOS"], queue=cells["Partition"],
        priority=pd.to_numeric(cells["Priority"].where(is_whole)),
        walltime_s=account_walltimes(cells, source, dump.ledger))
    return spread(jobs.join(times), source.name, dump)


def with_array_jobs(jobs: pd.DataFrame, file: str, ledger: Ledger) -> pd.DataFrame:
    """The same jobs, each waiting array (`12_[1-3]`) as its jobs."""
    is_array = jobs["name"].str.contains("_[", regex=False)
    note_rows(ledger, file, jobs.index[is_array], "interpreted",
              "a line for all waiting jobs of an array, one row for each")
    if not is_array.any():
        return jobs
    names: list[list[str]] = []
    count = 0
    for row, name in zip(jobs.index.tolist(), jobs["name"], strict=True):
        array, _, numbers = name.partition("_[")
        found = numbers_in_ranges(numbers.rstrip("]").partition("%")[0]) if numbers else []
        names.append([f"{array}_{number}" for number in found] or [name])
        count += len(names[-1]) if numbers else 0
        check_rows(count, file, row)
    return jobs.assign(name=pd.Series(names, jobs.index, dtype="object")).explode("name")


def hosts_of(lists: pd.Series, source: Source, ledger: Ledger) -> dict[str, list[str]]:
    """Hosts by their list, of which no more are named than jobs may have rows."""
    hosts: dict[str, list[str]] = {}
    count = 0
    distinct = lists.drop_duplicates()
    for row, text in zip(distinct.index, distinct, strict=True):
        hosts[text] = hosts_in(text)
        count += len(hosts[text]) - 1
        check_rows(count, source.name, int(row))
    lost = [text for text, found in hosts.items() if not found and text.lower() not in NO_HOSTS]
    note_rows(ledger, source.name, lists.index[lists.isin(lost)], "interpreted", NO_LIST)
    return hosts


def check_each(counts: Integers, rows: pd.Index, file: str) -> None:
    """Refuse jobs that would together be too many rows, so many each."""
    if counts.sum() > MOST_ROWS:
        place = int(np.argmax(counts.cumsum() > MOST_ROWS))
        check_rows(int(counts.sum()), file, int(rows[place]))


SEVERAL = ("a job on several nodes, or with several shares of GPUs, is several rows, JOB/0, JOB/1, "
           "...")


def spread(jobs: pd.DataFrame, file: str, dump: Records) -> pd.DataFrame:
    """Rows of jobs: one on each of their nodes for each kind of generic resources there.

    Equal shares of GPUs are found once.
    """
    if jobs.empty:
        return pd.DataFrame()
    jobs = with_array_jobs(jobs, file, dump.ledger)
    counts = jobs["demands"].map(len).to_numpy(np.int64)
    check_each(counts, jobs.index, file)
    note_rows(dump.ledger, file, jobs.index[counts > 1], "interpreted", SEVERAL)
    each = jobs.assign(row=jobs.index, turn=range(len(jobs)), job=jobs["name"], file=file).explode(
        "demands", ignore_index=True)
    demands = each["demands"].tolist()
    each["node"] = [hosts[one.part] for hosts, one in zip(each["hosts"], demands, strict=True)]
    numbered = each["name"] + "/" + each.groupby("turn").cumcount().astype(str)
    each["name"] = each["name"].where(~each.duplicated("turn", keep=False), numbered)
    keys = [(one.gres, wish, node if one.gres and one.gres.kind != "gpu" else "")  # a GPU is one
            for one, wish, node in zip(demands, each["wish"], each["node"], strict=True)]
    codes, kinds = pd.factorize(pd.Series(keys, dtype="object"))
    firsts = each["row"].groupby(codes).min()
    shares = []
    for (gres, wish, node), row, count in zip(kinds, firsts, np.bincount(codes), strict=True):
        share = share_of(gres, node, dump, (file, int(row)), int(count)) if gres else Share(0, 0)
        if wish is None and share.gpu_models:
            dump.note((file, int(row)), "interpreted", "what the job asked for is not there: the "
                      "model of GPU that it got is taken as asked for", int(count))
        elif gres:
            share = share._replace(gpu_models=wish or "")
        shares.append(share)
    columns = pd.DataFrame(shares, columns=list(Share._fields)).take(codes).set_index(each.index)
    cpus = pd.Series([one.cpus for one in demands], dtype="Float64")
    return each.drop(columns=["hosts", "demands", "wish", "turn"]).join(columns).assign(
        cpu_milli=1000 * cpus, memory_mib=[one.memory_mib for one in demands]).set_index("row")


def note_files(ledger: Ledger, rows: pd.DataFrame, what: str, reason: str) -> None:
    """Note rows of several files."""
    for file, some in rows.groupby("file", sort=False):
        note_rows(ledger, str(file), some.index, what, reason)


def from_one_file(rows: pd.DataFrame, ledger: Ledger) -> pd.DataFrame:
    """Rows of each attempt from one file: that which knows its end, or else the first."""
    key = ["job", "since"]
    knowing = rows.sort_values("end_s", key=lambda ends: ends.isna(), kind="stable")
    best = knowing.drop_duplicates(key).set_index(key)["file"]
    is_best = rows["file"].to_numpy() == best[pd.MultiIndex.from_frame(rows[key])].to_numpy()
    jobs = rows.groupby("job")
    has_started_elsewhere = (jobs["since"].transform("max") >= 0) & (
        jobs["file"].transform("nunique") > 1)
    is_best &= ~(has_started_elsewhere & (rows["since"] < 0)).to_numpy()
    note_files(ledger, rows[~is_best], "dropped", "another file has the job, too, and is read")
    some: pd.DataFrame = rows[is_best]
    return some


def with_attempts(tasks: pd.DataFrame, ledger: Ledger) -> pd.DataFrame:
    """Rows of jobs, each once, their attempts JOB@0, JOB@1, ... where there are several.

    Parameters
    ----------
    tasks : rows with `job` and `file`, in which a job starts as often as it was put back
    """
    if not len(tasks):
        return tasks
    rows = tasks.assign(since=tasks["start_s"].fillna(-1))
    if rows["file"].nunique() > 1:
        rows = from_one_file(rows, ledger)
    each = rows.drop_duplicates(["job", "since"]).sort_values("since", kind="stable")
    jobs = each.groupby("job")
    mark = ("@" + jobs.cumcount().astype(str)).where(jobs["since"].transform("size") > 1, "")
    each = each[["job", "since"]].assign(mark=mark, before=jobs["end_s"].shift())
    if not mark.any():
        return rows.drop(columns="since")
    rows = rows.merge(each, on=["job", "since"]).set_axis(rows.index)
    note_files(ledger, rows[rows["mark"] != ""], "interpreted", "a job of several attempts: one "
               "task for each, JOB@0, JOB@1, ..., submitted when the one before ended")
    parts = [name.removeprefix(job) for name, job in zip(rows["name"], rows["job"], strict=True)]
    rows["job"] += rows["mark"]
    return rows.assign(name=rows["job"] + parts,
                       submit_s=rows[["submit_s", "before"]].max(axis=1)).drop(
                           columns=["since", "mark", "before"])


def is_json_of_slurm(source: Source) -> bool:
    """Whether a file is JSON of Slurm."""
    head = source.head(512).lstrip()
    if head[:1] != "{" or "rawObjects" in head:
        return False
    try:
        document = source.json()
    except InputError:
        return '"slurm"' in head.lower() or '"jobs"' in head
    if not isinstance(document, dict):
        return False
    is_ours = [one for name in ("jobs", "nodes", "sinfo") for one in objects_at(document, name)[:1]]
    return any("metadata" not in one for one in is_ours) and "attempts" not in is_ours[0]


def is_accounts(source: Source) -> bool:
    """Whether a file is a table of `sacct -P`."""
    names = source.head(4096).partition("\n")[0].strip().split("|")
    return len(names) > 1 and bool({"JobID", "JobIDRaw"} & set(names))


def read_slurm(sources: Sequence[Source], ledger: Ledger,
               options: ReadOptions) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read records of Slurm.

    Parameters
    ----------
    sources : `--json` of scontrol, sinfo, squeue and sacct; tables of `sacct -P`
    ledger : where it is noted what was dropped, filled in or interpreted
    options : the zone of the dates of `sacct -P`, which have none

    Returns
    -------
    rows of nodes, rows of tasks, with times in seconds since 1970

    Raises
    ------
    InputError : a file is neither, or there is neither a node nor a job in any
    """
    dump = Records(ledger)
    accounts = [source for source in sources if is_accounts(source)]
    documents = [(source.name, text_document(source, ledger, options) if is_text_of_slurm(source)
                  else source.json()) for source in sources if source not in accounts]
    nodes = node_table(documents, dump)
    tasks = with_attempts(pd.concat([
        *(record_table(file, document, dump) for file, document in documents),
        *(account_table(source, dump, options) for source in accounts)]), ledger)
    if len(tasks):  # components of a heterogeneous job, 12+0 and 12+1, start together
        job = tasks["job"].astype(str).str.replace(r"^(\d+)\+\d+", r"\1", regex=True)
        tasks["job"] = job.where(job.duplicated(keep=False), "")
    if not len(nodes) and not len(tasks) and not ledger.frame()["count"].sum():
        raise InputError("there is neither a node nor a job in it", file=sources[0].name,
                         mend="give scontrol show nodes --json and squeue --json, or sacct -P")
    return nodes, tasks


FORMATS = (
    Format("slurm", "JSON of Slurm: scontrol show nodes, sinfo, squeue, sacct (22.05 to 25)",
           is_json_of_slurm, read_slurm),
    Format("sacct", "accounts of Slurm in text: sacct -P with JobID, Submit, Start, End, State, "
           "NNodes, NodeList, AllocTRES", is_accounts, read_slurm),
    Format("scontrol", "text of Slurm: scontrol show job -d, scontrol show node, the nodes of a "
           "slurm.conf", is_text_of_slurm, read_slurm))
