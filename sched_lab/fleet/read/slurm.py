"""What `scontrol`, `sinfo`, `squeue` and `sacct` print, from 22.05 to 25, as nodes and timed tasks."""

# A module, written by hand.

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

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
    encoding_of,
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
    rest = [one if one.type else one._replace(number=one.number - typed[one.kind])
            for one in found]
    return [one for one in rest if one.number > 0]


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


UNUSABLE = {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "MAINT", "POWERED_DOWN",
            "POWERING_DOWN", "NOT_RESPONDING", "UNKNOWN", "ERROR", "FUTURE", "INVALID_REG"}


def features_in(value: Any) -> list[str]:
    """Features of a node: a list, or a text with commas."""
    words = value if isinstance(value, list) else str(value or "").split(",")
    return [word.strip() for word in words if isinstance(word, str) and word.strip()]


def node_row(record: Any, dump: Records, place: tuple[str, int]) -> dict[str, Any]:
    """Row of a node of `scontrol show nodes` or of the `sinfo` of 22.05."""
    states = [*words_at(record, "state"), *words_at(record, "state_flags")]
    bad = [word for word in states if word.rstrip("*~#!%$@^-+") in UNUSABLE]
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
        "taints": as_json([{"key": "slurm/state", "value": bad[0], "effect": "NoSchedule"}]
                          ) if bad else ""}


class Records:
    """What the files have, and what was learnt of the nodes on the way."""

    def __init__(self, ledger: Ledger, count: int = 1) -> None:
        self.ledger = ledger
        self.count = count  # rows that a note is about
        self.parts: dict[str, Mapping[str, float]] = {}  # into which a GPU of a node may be shared
        self.labels: set[str] = set()

    def note(self, place: tuple[str, int], what: str, reason: str) -> None:
        """Write into the ledger what was done with a record."""
        self.ledger.note(*place, what, reason, self.count)

    def of_rows(self, count: int) -> Records:
        """The same records, of which each note is about so many rows."""
        same = Records(self.ledger, count)
        same.parts = self.parts
        return same


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
    rows: dict[str, dict[str, Any]] = {}
    places: list[int] = []
    for file, document in documents:
        found = [(number, row) for number, record in enumerate(objects_at(document, "nodes"), 1)
                 for row in (node_row(record, dump, (file, number)),)]
        found += [(number, row) for number, record in enumerate(objects_at(document, "sinfo"), 1)
                  for row in group_rows(record, dump, (file, number))]
        for number, row in found:
            before = rows.get(row["name"])
            if before is None:
                places.append(number)
                rows[row["name"]] = row
            elif before | {"labels": row["labels"]} == row:
                before["labels"] = before["labels"] | row["labels"]
            else:
                dump.note((file, number), "dropped", "the node is there already, and differs")
    for row in rows.values():
        dump.labels |= set(row["labels"])
        row["labels"] = as_json(row["labels"])
    return pd.DataFrame(list(rows.values()), index=places)


def first_of(record: Any, *paths: tuple[str, ...]) -> float | None:
    """Number at the end of the first path that has one."""
    found = (number_at(record, *path) for path in paths)
    return next((number for number in found if number is not None), None)


def name_of(record: Any) -> str:
    """Number of a job, with its place in an array or in a heterogeneous job."""
    array = number_at(record, "array_job_id") or number_at(record, "array", "job_id")
    het = number_at(record, "het_job_id") or number_at(record, "het", "job_id")
    task = first_of(record, ("array_task_id",), ("array", "task_id"))
    offset = first_of(record, ("het_job_offset",), ("het", "job_offset"))
    if array and task is not None:
        return f"{array:.0f}_{task:.0f}"
    if het:
        return f"{het:.0f}+{offset or 0:.0f}"
    job = number_at(record, "job_id")
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


def times_of(record: Any, dump: Records, place: tuple[str, int]) -> tuple[dict[str, Any], str]:
    """When a job came, started and ended, and whether it waits, runs or is over.

    A time of 0 is unknown. A job comes into the queue when it may start, which is its submission
    but for dependencies, holds and times of begin.
    """
    times: dict[str, Any] = {}
    for name, paths in TIME_FIELDS.items():
        found = [number_at(record, *path) for path in paths]
        times[name] = next((time for time in found if time), None)
    words = words_at(record, "job_state") or words_at(record, "state")
    state = state_of(words, bool(times["start_s"]), bool(times["end_s"]))
    eligible = times.pop("eligible_s")
    latest = times["start_s"] if times["start_s"] and state != WAITS else np.inf
    if eligible and times["submit_s"] and times["submit_s"] < eligible <= latest:
        dump.note(place, "interpreted", ELIGIBLE_LATER)
        times["submit_s"] = eligible
    if state == WAITS and not eligible:
        dump.note(place, "interpreted", NOT_ELIGIBLE)
    if state == WAITS:
        return {"submit_s": times["submit_s"], "state": WAITING}, state
    if state == RUNS:
        if times["end_s"]:
            dump.note(place, "interpreted", "the job runs, and the end of its time limit is not "
                      "its end")
        times["end_s"] = None
    return times, state


TIME_FIELDS = {
    "eligible_s": (("eligible_time",), ("time", "eligible")),
    "submit_s": (("submit_time", ), ("time", "submission")),
    "start_s": (("start_time", ), ("time", "start")),
    "end_s": (("end_time", ), ("time", "end"))}


def tres_text(record: Any, which: str) -> str:
    """Trackable resources of a record of `sacct --json` as a text like that of `squeue`."""
    parts = []
    for one in objects_at(record, "tres", which):
        kind = text_at(one, "type")
        name = f"{kind}/{text_at(one, 'name')}" if text_at(one, "name") else kind
        unit = "M" if kind == "mem" else ""
        parts.append(f"{name}={number_at(one, 'count') or 0:.0f}{unit}")
    return ",".join(parts)


class Demand(NamedTuple):
    """What a job has or asks for on one node."""

    node: str
    gres: tuple[Gres, ...]
    cpus: float | None
    memory_mib: float | None


def split(total: float | None, parts: int) -> list[float | None]:
    """A number in so many parts, as even as whole numbers can be."""
    if total is None:
        return [None] * parts
    low, more = divmod(int(total), parts)
    return [low + (number < more) for number in range(parts)]


def split_gres(gres: Sequence[Gres], parts: int) -> list[tuple[Gres, ...]]:
    """Generic resources of a job on each of its nodes, if only their sum is known."""
    shares = [split(one.number, parts) for one in gres]
    return [tuple(one._replace(number=int(share[part] or 0), gpu_list="")
                  for one, share in zip(gres, shares, strict=True) if share[part])
            for part in range(parts)]


def gres_by_node(record: Any, parts: int, dump: Records,
                 place: tuple[str, int]) -> list[tuple[Gres, ...]]:
    """Generic resources of a job on each of its nodes, from the first place that knows."""
    detail = dig(record, "gres_detail")
    texts = [text for text in detail if isinstance(text, str)] if isinstance(detail, list) else []
    if len(texts) == parts and any(map(gres_in, texts)):
        return [tuple(gres_in(text)) for text in texts]
    total = ",".join(texts) or text_at(record, "tres_alloc_str") or tres_text(record, "allocated")
    asked = text_at(record, "tres_req_str") or tres_text(record, "requested")
    per_node = text_at(record, "tres_per_node")
    if gres := gres_in(total):
        return split_gres(gres, parts)
    if gres := gres_in(per_node):
        return [tuple(gres)] * parts
    per_task = gres_in(text_at(record, "tres_per_task"))
    tasks = number_at(record, "tasks") or 1
    if per_task:
        per_task = [one._replace(number=int(one.number * tasks)) for one in per_task]
    gres = gres_in(text_at(record, "tres_per_job")) or per_task or gres_in(asked)
    if not gres and gres_in(text_at(record, "tres_per_socket")):
        dump.note(place, "interpreted", "GPUs asked for by socket are taken as one socket a node")
        return [tuple(gres_in(text_at(record, "tres_per_socket")))] * parts
    return split_gres(gres, parts)


def given(record: Any) -> dict[str, tuple[float | None, float | None]]:
    """Processors and MiB of a job on each of its nodes, where its record has them."""
    nodes = dig(record, "job_resources", "nodes")
    found = objects_at(nodes, "allocation") or objects_at(record, "job_resources",
                                                          "allocated_nodes")
    return {text_at(one, "name") or text_at(one, "nodename"): (
        number_at(one, "cpus", "count") or number_at(one, "cpus"),
        number_at(one, "memory", "allocated") or number_at(one, "memory_allocated"))
            for one in found}


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


def demands_of(record: Any, state: str, dump: Records, place: tuple[str, int]) -> list[Demand]:
    """What a job has or asks for, node by node."""
    written = text_at(record, "nodes") if state != WAITS else ""
    hosts = hosts_in(written)
    if not hosts and written.strip().lower() not in NO_HOSTS:
        dump.note(place, "interpreted", NO_LIST)
    asked = number_at(record, "node_count") or number_at(record, "allocation_nodes") or 1
    parts = len(hosts) or int(min(max(asked, 1), MOST_HOSTS))
    tres = (text_at(record, "tres_alloc_str") or text_at(record, "tres_req_str")
            or tres_text(record, "allocated") or tres_text(record, "requested"))
    counted = re.search(r"(?:^|,)cpu=(\d{1,15})(?!\d)", tres)
    cpus = int(counted[1]) if counted else number_at(record, "cpus") or number_at(
        record, "required", "CPUs")
    by_node = given(record)
    cells = zip(hosts or [""] * parts, gres_by_node(record, parts, dump, place),
                split(cpus, parts), split(memory_of(record, tres, cpus, parts), parts), strict=True)
    return [Demand(host, gres, by_node.get(host, (None, None))[0] or cpu,
                   by_node.get(host, (None, None))[1] or memory)
            for host, gres, cpu, memory in cells]


def memory_of(record: Any, tres: str, cpus: float | None, parts: int) -> float | None:
    """MiB of a job on all its nodes."""
    per_node = number_at(record, "memory_per_node") or number_at(record, "required",
                                                                 "memory_per_node")
    per_cpu = number_at(record, "memory_per_cpu") or number_at(record, "required",
                                                               "memory_per_cpu")
    if (known := memory_in(tres)) is not None:
        return known
    return per_node * parts if per_node else per_cpu * cpus if per_cpu and cpus else None


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


def share_of(gres: Gres, demand: Demand, dump: Records, place: tuple[str, int]) -> Share:
    """What generic resources are in GPUs and thousandths of them."""
    if gres.kind == "gpu":
        return Share(gres.number, milli_of_profile(gres.profile) or 1000, gres.profile,
                     gres.gpu_list, gres.gpu_model)
    known = [parts[gres.kind] for name, parts in dump.parts.items()
             if gres.kind in parts and demand.node in ("", name)]
    parts = known[0] if known else {"mps": 100.0}.get(gres.kind, 1.0)
    if not known:
        dump.note(place, "interpreted", f"{gres.kind} without a node that has it, taken as "
                  f"{parts:.0f} to a GPU")
    milli = int(-(-1000 * gres.number // parts))
    gpus = max(-(-milli // 1000), 1)
    return Share(gpus, min(-(-milli // gpus), 1000), "", gres.gpu_list, gres.gpu_model)


def shares_of(demand: Demand, wish: str | None, dump: Records,
              place: tuple[str, int]) -> list[Share]:
    """Shares of a job on one node, with the model that it asked for."""
    shares = [share_of(gres, demand, dump, place) for gres in demand.gres]
    if wish is None and any(share.gpu_models for share in shares):
        dump.note(place, "interpreted", "what the job asked for is not there: the model of GPU "
                  "that it got is taken as asked for")
    return [share if wish is None else share._replace(gpu_models=wish)
            for share in shares] or [Share(0, 0)]


def models_asked(asked: str) -> str | None:
    """Model of GPUs that a request names, empty for any; None if it asks for none."""
    gres = [one for one in gres_in(asked) if one.kind == "gpu"]
    return "|".join(dict.fromkeys(one.gpu_model for one in gres if one.gpu_model)) if gres else None


def asked_of(record: Any) -> str:
    """What a job asks for, as one text."""
    fields = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_req_str")
    texts = [text_at(record, name) for name in fields]
    return ",".join(filter(None, [*texts, tres_text(record, "requested")]))


def walltime_at(record: Any) -> float | None:
    """Seconds after which Slurm ends a job; None if it has no limit, or none is known."""
    minutes = first_of(record, ("time_limit",), ("time", "limit"))
    return 60 * minutes if minutes and minutes > 0 else None


def rows_of_job(record: Any, dump: Records, place: tuple[str, int]) -> list[dict[str, Any]]:
    """Rows of a job: one for each node and each share of GPUs."""
    times, state = times_of(record, dump, place)
    priority = number_at(record, "priority")
    said = dig(record, "priority")
    if priority is None and not (said is None or isinstance(said, dict)):
        dump.note(place, "interpreted", "priority is no number below 2**53, taken as unknown")
    if state == OVER and not times.get("start_s"):
        dump.note(place, "dropped", "the job ended without a start")
        return []
    if state == OVER and not times.get("end_s"):
        dump.note(place, "dropped", "the job is over, and nothing says since when")
        return []
    row = {
        **times, "user": text_at(record, "user_name") or text_at(record, "user")
        or text_at(record, "association", "user"), "queue": text_at(record, "partition"),
        "priority": priority, "walltime_s": walltime_at(record),
        "fixed": "its Requeue is 0" if dig(record, "requeue") is False else "",
        "constraints": constraints_of(record, dump, place)}
    wish = models_asked(asked_of(record))
    parts = [(demand, share, number == 0) for demand in demands_of(record, state, dump, place)
             for number, share in enumerate(shares_of(demand, wish, dump, place))]
    if len(parts) > 1:
        dump.note(place, "interpreted", "a job on several nodes, or with several shares of GPUs, "
                  "is several rows, JOB/0, JOB/1, ...")
    names = names_of(record, dump, place)
    check_rows(len(names) * len(parts), *place)
    amounts = [{"node": demand.node, **share._asdict(),  # the first share on a node has the rest
                "memory_mib": demand.memory_mib if is_first else 0,
                "cpu_milli": None if is_first and demand.cpus is None else
                1000 * (demand.cpus or 0) * is_first}
               for demand, share, is_first in parts]
    return [row | amount | {"job": job, "name": f"{job}/{part}" if len(parts) > 1 else job}
            for job in names for part, amount in enumerate(amounts)]


def names_of(record: Any, dump: Records, place: tuple[str, int]) -> list[str]:
    """Names of a job; a waiting array is one record for many."""
    name = name_of(record)
    written = text_at(record, "array_task_string") or text_at(record, "array", "task")
    numbers = numbers_in_ranges(written.split("%")[0]) if written else []
    if "_" in name or not numbers:
        return [name]
    dump.note(place, "interpreted", "a record for all waiting jobs of an array, one row for each")
    array = number_at(record, "array_job_id") or number_at(record, "array", "job_id")
    return [f"{array:.0f}_{number}" if array else f"{name}_{number}" for number in numbers]


USED = {
    "account", "allocation_nodes", "array", "array_job_id", "array_task_id", "array_task_string",
    "association", "cpus", "eligible_time", "end_time", "excluded_nodes", "features",
    "gres_detail", "het", "het_job_id", "het_job_offset", "job_id", "job_resources", "job_state", "memory_per_cpu",
    "memory_per_node", "node_count", "nodes", "partition", "priority", "required",
    "required_nodes", "start_time", "state", "submit_time", "tasks", "time", "time_limit", "tres",
    "tres_alloc_str", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task",
    "tres_req_str", "user", "user_name"}


def job_table(documents: Sequence[tuple[str, Any]], dump: Records) -> pd.DataFrame:
    """Rows of jobs of all files."""
    rows: list[dict[str, Any]] = []
    places: list[int] = []
    for file, document in documents:
        unread: set[str] = set()
        for number, record in enumerate(objects_at(document, "jobs"), 1):
            found = [row | {"file": file} for row in rows_of_job(record, dump, (file, number))]
            unread |= set(record) - USED
            rows += found
            check_rows(len(rows), file, number)
            places += [number] * len(found)
        if unread:
            dump.ledger.note(file, None, "extra column",
                             f"fields of jobs: {', '.join(sorted(unread))}", len(unread))
    return pd.DataFrame(rows, index=places)


def account_lines(source: Source, ledger: Ledger) -> pd.DataFrame:
    """Cells of `sacct -P`, indexed by line."""
    lines = source.text().splitlines()
    header = [name.strip() for name in lines[0].strip().strip("|").split("|")]
    if again := next((name for name in header if header.count(name) > 1), None):
        raise InputError("the header names this column twice", file=source.name, row=1,
                         column=again, mend="name each field of --format once")
    rows = [line.split("|") for line in lines[1:]]
    if lines[0].rstrip().endswith("|"):
        rows = [row[:-1] if row[-1] == "" else row for row in rows]
    good = [number for number, row in enumerate(rows) if len(row) == len(header)]
    bad = [number + 2 for number, row in enumerate(rows) if len(row) != len(header) and any(row)]
    note_rows(ledger, source.name, bad, "dropped",
              "the line has another number of cells than the header")
    cells = pd.DataFrame([rows[number] for number in good], columns=header, dtype="object",
                         index=[number + 2 for number in good])
    text = f"\n{source.text()}\n"
    has_blanks = any(mark in text for mark in (" |", "| ", "\t|", "|\t", " \r", " \n", "\n "))
    return cells.apply(lambda column: column.str.strip()) if has_blanks and len(cells) else cells


ACCOUNT_FIELDS = {
    "JobID", "JobIDRaw", "Submit", "Eligible", "Start", "End", "State", "NNodes", "AllocNodes",
    "NodeList", "AllocTRES", "ReqTRES", "AllocCPUS", "NCPUS", "ReqCPUS", "User", "Partition", "Priority",
    "AllocGRES", "ReqGRES", "ReqMem", "Timelimit", "TimelimitRaw"}


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


def account_times(cells: pd.DataFrame, source: Source, ledger: Ledger,
                  options: ReadOptions) -> pd.DataFrame:
    """Submission, start and end of the jobs of `sacct -P`, and whether they are over."""
    read = partial(seconds_in, source=source, ledger=ledger, options=options)
    times = pd.DataFrame({
        f"{name.lower()}_s": read(cells[name].where(cells[name] != "None", ""))
        for name in ("Submit", "Eligible", "Start", "End")})
    has_no_node = cells["NodeList"].str.lower().isin(["none assigned", "none"])
    has_run = times["start_s"].notna() & ~has_no_node
    facts = list(zip(cells["State"].str.upper(), has_run, times["end_s"].notna(), strict=True))
    found = {one: state_of([one[0]], *one[1:]) for one in set(facts)}
    states = pd.Series([found[one] for one in facts], cells.index, dtype="object")
    eligible = times.pop("eligible_s")
    latest = times["start_s"].where(states != WAITS).fillna(np.inf)
    is_later = ((eligible > times["submit_s"]) & (eligible <= latest)).fillna(False)
    note_rows(ledger, source.name, cells.index[is_later], "interpreted", ELIGIBLE_LATER)
    times["submit_s"] = times["submit_s"].mask(is_later, eligible)
    is_held = (states == WAITS) & eligible.isna() & cells["Eligible"].ne("")
    note_rows(ledger, source.name, cells.index[is_held], "interpreted", NOT_ELIGIBLE)
    is_attempt = cells["State"].str.upper().str.startswith("REQUEUED") & (states == OVER)
    note_rows(ledger, source.name, cells.index[is_attempt], "interpreted",
              "put back into the queue: an attempt, which is over")
    times.loc[states == WAITS, ["start_s", "end_s"]] = pd.NA
    times.loc[states == RUNS, "end_s"] = pd.NA
    is_instant = times["start_s"].eq(times["end_s"]).fillna(False) & cells["AllocTRES"].eq("")
    never = (states == OVER) & (~has_run | (is_instant & cells["NodeList"].eq("")))
    note_rows(ledger, source.name, cells.index[never], "dropped", "the job ended without a start")
    lost = (states == OVER) & has_run & times["end_s"].isna()
    note_rows(ledger, source.name, cells.index[lost], "dropped",
              "the job is over, and nothing says since when")
    return times.assign(state=np.where(states == WAITS, WAITING, ""))[~never & ~lost]


def account_demand(cells: pd.DataFrame, source: Source, ledger: Ledger) -> pd.DataFrame:
    """Processors, MiB, nodes and generic resources of the jobs of `sacct -P`, on all nodes."""
    tres = cells["AllocTRES"].where(cells["AllocTRES"] != "", cells["ReqTRES"])
    for name in ("AllocGRES", "ReqGRES"):
        others = cells[name].str.replace(NUMBERED, lambda found: PLUGINS.get(found[1], found[1]),
                                         regex=True)
        strange = others.map(lambda text: bool(NUMBERED.search(text))).astype(bool)
        note_rows(ledger, source.name, cells.index[strange], "interpreted",
                  f"{name} names a generic resource by a number that is not known: not counted")
        tres = tres.where(tres.map(lambda text: bool(GRES.search(text))), tres + "," + others)
    read = {text: (memory_in(text), gres_in(text)) for text in tres.unique()}
    cpus = tres.str.extract(r"(?:^|,)cpu=(\d{1,15})(?!\d)")[0]
    for name in ("AllocCPUS", "NCPUS", "ReqCPUS"):
        cpus = cpus.where(cpus.notna() & (cpus != "0"), cells[name])
    nodes = pd.to_numeric(cells["NNodes"].where(cells["NNodes"] != "", cells["AllocNodes"]),
                          errors="coerce").fillna(1).clip(1, MOST_HOSTS).astype(int)
    memory = tres.map({text: memory for text, (memory, _) in read.items()})
    return pd.DataFrame({
        "cpus": pd.to_numeric(cpus, errors="coerce"), "memory_mib": memory, "nodes": nodes,
        "gres": tres.map({text: tuple(gres) for text, (_, gres) in read.items()}),
        "wish": cells["ReqTRES"].map({text: models_asked(text)
                                      for text in cells["ReqTRES"].unique()}).astype("object")})


def account_table(source: Source, dump: Records, options: ReadOptions) -> pd.DataFrame:
    """Rows of the jobs of `sacct -P`."""
    cells = jobs_only(account_lines(source, dump.ledger), source, dump.ledger)
    times = account_times(cells, source, dump.ledger, options)
    cells = cells.loc[times.index]
    lost = ~cells["Priority"].str.fullmatch(WHOLE) & ~cells["Priority"].str.lower().isin(UNKNOWN)
    note_rows(dump.ledger, source.name, cells.index[lost], "interpreted",
              "column Priority: no whole number below 10^15, taken as unknown")
    jobs = cells[["name", "User", "Partition", "Priority", "NodeList"]].assign(
        walltime_s=account_walltimes(cells, source, dump.ledger)).join(times).join(account_demand(cells, source, dump.ledger))
    jobs = with_array_jobs(jobs, source, dump.ledger)
    return spread(jobs, source, dump).assign(file=source.name)


def with_array_jobs(jobs: pd.DataFrame, source: Source, ledger: Ledger) -> pd.DataFrame:
    """The same jobs, each waiting array (`12_[1-3]`) as its jobs."""
    is_array = jobs["name"].str.contains("_[", regex=False)
    if not is_array.any():
        return jobs
    note_rows(ledger, source.name, jobs.index[is_array], "interpreted",
              "a line for all waiting jobs of an array, one row for each")
    names: list[list[str]] = []
    count = 0
    arrays = jobs.loc[is_array, "name"]
    for row, name in zip(arrays.index.tolist(), arrays, strict=True):
        array, _, numbers = name.partition("_[")
        found = numbers_in_ranges(numbers.rstrip("]").partition("%")[0])
        names.append([f"{array}_{number}" for number in found] or [name])
        count += len(names[-1])
        check_rows(count, source.name, row)
    each = pd.Series(names, arrays.index, dtype="object")
    many = jobs[is_array].assign(name=each).explode("name")
    return pd.concat([jobs[~is_array], many])


def hosts_of(jobs: pd.DataFrame, source: Source, ledger: Ledger) -> dict[str, list[str]]:
    """Hosts by their list, of which no more are named than jobs may have rows."""
    hosts: dict[str, list[str]] = {}
    count = 0
    lists = jobs["NodeList"].drop_duplicates()
    for row, text in zip(lists.index, lists, strict=True):
        hosts[text] = hosts_in(text)
        count += len(hosts[text]) - 1
        check_rows(count, source.name, int(row))
    lost = [text for text, found in hosts.items() if not found and text.lower() not in NO_HOSTS]
    note_rows(ledger, source.name, jobs.index[jobs["NodeList"].isin(lost)], "interpreted", NO_LIST)
    return hosts


SEVERAL = ("a job on several nodes, or with several shares of GPUs, is several rows, JOB/0, JOB/1, "
           "...")


def spread(jobs: pd.DataFrame, source: Source, dump: Records) -> pd.DataFrame:
    """Rows of jobs on each of their nodes, one for each kind of generic resources there.

    What a job has is divided among its nodes as evenly as whole numbers can be. The first kind on a
    node has its processors and memory.
    """
    hosts = hosts_of(jobs, source, dump.ledger)
    count = jobs["NodeList"].map({text: len(found) for text, found in hosts.items()})
    parts = count.where(count > 0, jobs["nodes"]).to_numpy(np.int64)
    if parts.sum() > MOST_ROWS:
        place = int(np.argmax(parts.cumsum() > MOST_ROWS))
        check_rows(int(parts.sum()), source.name, int(jobs.index[place]))
    has_kinds = jobs["gres"].map(len).to_numpy() > 1
    note_rows(dump.ledger, source.name, jobs.index[has_kinds | (parts > 1)], "interpreted", SEVERAL)
    job = np.repeat(np.arange(len(jobs)), parts)
    part = np.arange(len(job)) - np.repeat(np.cumsum(parts) - parts, parts)
    each = jobs.iloc[job].assign(row=jobs.index[job], turn=job, part=part).reset_index(drop=True)
    each["node"] = list(chain.from_iterable(
        hosts[text] or [""] * int(count) for text, count in zip(jobs["NodeList"], parts, strict=True)))
    for column in ("cpus", "memory_mib"):
        amount = each[column].to_numpy(float, na_value=np.nan)
        low, more = np.divmod(np.floor(amount), parts[job])
        each[column] = np.where(parts[job] > 1, low + (part < more), amount)
    shares = {(gres, count): split_gres(gres, count) if count > 1 else [gres]
              for gres, count in set(zip(jobs["gres"], parts.tolist(), strict=True))}
    each["gres"] = pd.Series([shares[gres, count][number] for gres, count, number in zip(
        each["gres"], parts[job].tolist(), part.tolist(), strict=True)], dtype="object")
    if has_kinds.any():
        each["gres"] = each["gres"].map(lambda gres: [(one,) for one in gres] or [gres])
        each = each.explode("gres", ignore_index=True)
        each.loc[each.duplicated(["turn", "part"]), ["cpus", "memory_mib"]] = 0
    by_job = each.groupby("turn")
    is_several = (by_job["turn"].transform("size") > 1) | has_kinds[each["turn"]]
    numbered = each["name"] + "/" + by_job.cumcount().astype(str)
    each = each.assign(job=each["name"], name=each["name"].where(~is_several, numbered))
    return job_rows(each, source, dump).set_index("row")


def job_rows(jobs: pd.DataFrame, source: Source, dump: Records) -> pd.DataFrame:
    """Rows of jobs with at most one kind of GPU, on one node each; equal shares are found once."""
    is_plain = jobs["gres"].map(lambda gres: not gres or gres[0].kind == "gpu")
    codes, keys = pd.factorize(pd.Series(list(zip(  # a GPU is the same on every node
        jobs["gres"], jobs["wish"], jobs["node"].where(~is_plain, ""), strict=True)),
        dtype="object"))
    count = np.bincount(codes, minlength=len(keys))
    first = jobs["row"].groupby(codes).min()
    shares = [shares_of(Demand(node, gres, None, None), wish, dump.of_rows(int(number)),
                        (source.name, int(row)))[0]
              for (gres, wish, node), number, row in zip(keys, count, first, strict=True)]
    columns = pd.DataFrame(shares, columns=list(Share._fields)).take(codes).set_index(jobs.index)
    return columns.assign(
        **{name: jobs[name] for name in (
            "row", "name", "submit_s", "start_s", "end_s", "walltime_s", "state", "node",
            "memory_mib")},
        job=jobs["job"], user=jobs["User"], queue=jobs["Partition"],
        cpu_milli=1000 * jobs["cpus"],
        priority=pd.to_numeric(jobs["Priority"].where(jobs["Priority"].str.fullmatch(WHOLE))))


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
    rows = tasks.copy()
    for name in ("submit_s", "start_s", "end_s"):
        rows[name] = tasks[name].astype("Float64") if name in tasks else pd.NA
    rows["since"] = rows["start_s"].fillna(-1)
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
    head = source.data[:512].decode(encoding_of(source.data), errors="replace").lstrip()
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
    head = source.data[:4096].decode(encoding_of(source.data), errors="replace")
    names = head.lstrip("\ufeff").partition("\n")[0].strip().split("|")
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
    documents = [(source.name, source.json()) for source in sources if source not in accounts]
    nodes = node_table(documents, dump)
    tables = [account_table(source, dump, options) for source in accounts]
    tasks = with_attempts(pd.concat([job_table(documents, dump), *tables]), ledger)
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
           "NNodes, NodeList, AllocTRES", is_accounts, read_slurm))
