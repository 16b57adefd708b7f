"""Pods that start together or not at all: who says so, in which words, and how many of them there must be."""

# A module, written by hand.

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .objects import Item, dig, objects_at, text_at, whole
from .tables import WAITING

NATIVE = "scheduling.k8s.io"
NAMES = (  # where a pod names its group, and the API group of the program that starts it together
    ("labels", "scheduling.x-k8s.io/pod-group", "scheduling.x-k8s.io"),
    ("annotations", "scheduling.k8s.io/group-name", "scheduling.volcano.sh"),
    ("annotations", "scheduling.volcano.sh/group-name", "scheduling.volcano.sh"),
    ("annotations", "pod-group-name", "scheduling.run.ai"),
    ("labels", "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io"),
    ("annotations", "gang.scheduling.koordinator.sh/name", "scheduling.koordinator.sh"),
    ("labels", "pod-group.scheduling.sigs.k8s.io/name", "scheduling.sigs.k8s.io"))
COUNTS = {  # where the pods themselves say how many start together
    "kueue.x-k8s.io": ("annotations", "kueue.x-k8s.io/pod-group-total-count"),
    "scheduling.koordinator.sh": ("annotations", "gang.scheduling.koordinator.sh/min-available"),
    "scheduling.sigs.k8s.io": ("labels", "pod-group.scheduling.sigs.k8s.io/min-available")}
KINDS = {"PodGroup": ("", NATIVE, *(program for *_, program in NAMES if program not in COUNTS)), "Workload": (NATIVE,)}
MOST_PODS = 2**20  # that can have to start together


class Group(NamedTuple):
    """Pods that name each other: program and kind of what says how many start together, namespace, and names in it."""

    program: str
    kind: str
    namespace: str
    names: tuple[str, ...]

    @property
    def job(self) -> str:
        """How the column `job` names it."""
        return f"{self.program} {self.namespace}/{'/'.join(self.names)}"

    @property
    def shown_by(self) -> str:
        """What says how many of it start together."""
        if self.program in COUNTS:
            place, key = COUNTS[self.program]
            return f"{place.removesuffix('s')} {key}"
        return f"kubectl get {self.kind.lower()}s.{self.program} -A -o json"


def says_how_many(item: Item) -> bool:
    """Whether an object says how many pods of a group must start together."""
    return program_of(item) in KINDS.get(item.kind, ())


def program_of(item: Item) -> str:
    """API group of an object; empty if it does not say which."""
    return item.text("apiVersion").rpartition("/")[0]


def group_of(pod: Item) -> Group | None:
    """Group that a pod names; None if it names none."""
    if name := pod.text("spec", "schedulingGroup", "podGroupName"):
        return Group(NATIVE, "PodGroup", pod.namespace, (name,))
    if name := pod.text("spec", "workloadRef", "name"):  # of Kubernetes 1.35
        return Group(NATIVE, "Workload", pod.namespace, (name, *(
            pod.text("spec", "workloadRef", part) for part in ("podGroup", "podGroupReplicaKey"))))
    for place, key, program in NAMES:
        if name := getattr(pod, place).get(key, ""):
            return Group(program, "PodGroup", pod.namespace, (name,))
    return None


def least_of(group: Group, pod: Item, said: Mapping[tuple[str, str, str, str], Item]) -> int | None:
    """How many pods of a group must start together, at least 1; None if nothing says it.

    Parameters
    ----------
    group, pod : the group, and one of its pods
    said : objects that say it, by program, kind, namespace and name
    """
    if group.program in COUNTS:
        place, key = COUNTS[group.program]
        return count_in(getattr(pod, place).get(key))
    found = next((said[key] for key in ((program, *group[1:3], group.names[0]) for program in (group.program, ""))
                  if key in said), None)
    if found is None:
        return None
    spec: Any = dig(found.body, "spec")
    if group.kind == "Workload":
        spec = next((one for one in objects_at(spec, "podGroups") if text_at(one, "name") == group.names[1]), {})
    counts = [dig(spec, *path) for path in (
        ("minMember",), ("schedulingPolicy", "gang", "minCount"), ("policy", "gang", "minCount"))]
    return count_in(next((one for one in counts if one is not None), 1))


def count_in(written: Any) -> int | None:
    """A number of pods, at least 1; None if it is none."""
    count = whole(written)
    return max(count, 1) if count is not None and count <= MOST_PODS else None


Rows = list[dict[str, Any]]


def together(pods: Iterable[tuple[Item, Rows]], least: float) -> tuple[list[list[tuple[Item, Rows]]],
                                                                      list[tuple[Item, Rows]]]:
    """Gangs of a group, one after the other in time, and the pods beyond as many as must start together.

    Those that started first are in it first. The next gang begins with the first pod that came after all of the
    last one had ended.

    Parameters
    ----------
    pods : of the group, with their rows in the table
    least : how many must start together
    """
    def when(pod: tuple[Item, Rows], name: str) -> float:
        value = pod[1][0].get(name)
        return math.inf if value is None else float(value)

    gangs: list[list[tuple[Item, Rows]]] = []
    beyond = []
    for pod in sorted(pods, key=lambda pod: (when(pod, "start_s"), when(pod, "submit_s"))):
        if not gangs or all(when(other, "end_s") <= when(pod, "submit_s") < math.inf for other in gangs[-1]):
            gangs.append([pod])
        elif len(gangs[-1]) < least:
            gangs[-1].append(pod)
        else:
            beyond.append(pod)
    return gangs, beyond


def join_gangs(pods: Sequence[tuple[Item, Rows]], said: Iterable[Item],
               note: Callable[[Item, str, str], None]) -> None:
    """Write into the rows of pods that start together which job they are parts of, and how many parts it lacks.

    Parameters
    ----------
    pods : pods with their rows in the table, which are changed
    said : objects that say how many pods of a group must start together
    note : writes into the ledger what was done with a pod
    """
    objects = {(program_of(one), one.kind, one.namespace, one.name): one for one in said}
    groups: dict[Group, list[tuple[Item, Rows]]] = {}
    for item, rows in pods:
        if rows and (group := group_of(item)):
            groups.setdefault(group, []).append((item, rows))
    for group, members in groups.items():
        least = least_of(group, members[0][0], objects)
        if least == 1:
            continue
        gangs, beyond = together(members, least or math.inf)
        for item, _ in beyond:
            note(item, "interpreted", "a pod beyond those of its group that must start together: a task of its own")
        for number, gang in enumerate(gangs, 1):
            lacking = max(0, (least or 0) - len(gang))
            states = {rows[0].get("state", "") for _, rows in gang if rows[0].get("end_s") is None}
            for item, rows in gang if len(gang) > 1 or lacking else ():
                note(item, "interpreted", "a pod of a group that starts together is a part of one job")
                if least is None:
                    note(item, "interpreted", "nothing says how many pods of its group must start together, as "
                         f"{group.shown_by} would: taken as all of them")
                if lacking:
                    note(item, "interpreted", "fewer pods of its group are there than must start together: what waits "
                         "of it cannot start")
                elif len(states) > 1 and rows[0].get("state") == WAITING:
                    note(item, "interpreted", "others of its group run already: those that wait start together")
                for row in rows:
                    row["job"] = group.job if number == 1 else f"{group.job} {number}"
                    row["lacking_parts"] = lacking or None
