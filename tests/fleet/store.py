"""What an API server keeps, for the fake one on loopback and for the simulated one: objects, versions, changes."""
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from sched_lab.fleet.live.bridge import ApiError, Call, Steps

Body = dict[str, Any]


def carried_out(steps: Steps, act: Callable[[Call], Any]) -> Any:
    """Let something act on each call of some steps, which hear of its `ApiError`; return what they return."""
    proceed, answer = steps.send, None
    try:
        while True:
            call = proceed(answer)
            try:
                proceed, answer = steps.send, act(call)
            except ApiError as trouble:
                proceed, answer = steps.throw, trouble
    except StopIteration as done:
        return done.value


def number_of(body: Body) -> int:
    """Version of an object."""
    return int(body["metadata"]["resourceVersion"])


class Store:
    """Nodes and pods by name, and the history of all changes; a change makes a new object, none is ever altered.

    Attributes
    ----------
    objects : by kind and name
    history : by kind, (change, object) in order of versions
    version, oldest : of the last change; of the first that a watch may begin at
    news : is told of every change
    """

    def __init__(self) -> None:
        kinds = ("nodes", "pods", "podgroups", "leases")
        self.objects: dict[str, dict[str, Body]] = {kind: {} for kind in kinds}
        self.history: dict[str, list[tuple[str, Body]]] = {kind: [] for kind in kinds}
        self.version = 0
        self.oldest = 0
        self.news = threading.Condition()

    def write(self, kind: str, change: str, body: Body) -> Body:
        """Make a change: ADDED, MODIFIED or DELETED."""
        with self.news:
            self.version += 1
            new = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
            if change == "DELETED":
                del self.objects[kind][new["metadata"]["name"]]
            else:
                self.objects[kind][new["metadata"]["name"]] = new
            self.history[kind].append((change, new))
            self.news.notify_all()
        return new

    def create(self, kind: str, body: Body) -> Body:
        """Add an object, with a UID if it has none; 409 if there is one of its name."""
        metadata = {"uid": f"uid-{self.version}", **body["metadata"]}
        with self.news:
            if metadata["name"] in self.objects[kind]:
                raise ApiError(409, f"{kind} {metadata['name']} exists already")
            return self.write(kind, "ADDED", {"status": {"phase": "Pending"}, **body, "metadata": metadata})

    def get(self, kind: str, name: str) -> Body:
        """Return an object; 404 if there is none."""
        found = self.objects[kind].get(name)
        if found is None:
            raise ApiError(404, f"{kind} {name} not found")
        return found

    def replace(self, kind: str, name: str, body: Body) -> Body:
        """Write over an object; 409 if it is not as it was read any more."""
        with self.news:
            if self.get(kind, name)["metadata"]["resourceVersion"] != body["metadata"].get("resourceVersion"):
                raise ApiError(409, f"{kind} {name} has been changed")
            return self.write(kind, "MODIFIED", body)

    def annotate(self, kind: str, name: str, annotations: dict[str, str | None], version: str = "") -> Body:
        """Write annotations, None for one that goes; 409 if there is a version and the object has another by now."""
        with self.news:
            body = self.get(kind, name)
            if version and body["metadata"]["resourceVersion"] != version:
                raise ApiError(409, f"{kind} {name} has been changed")
            said = {**body["metadata"].get("annotations", {}), **annotations}
            kept = {key: text for key, text in said.items() if text is not None}
            return self.write(kind, "MODIFIED", {**body, "metadata": {**body["metadata"], "annotations": kept}})

    def delete(self, kind: str, name: str) -> Body:
        """Remove an object."""
        return self.write(kind, "DELETED", self.get(kind, name))

    def bind(self, name: str, uid: str, node: str, annotations: dict[str, str]) -> None:
        """Give a pod its node and annotations; 409 if it is another one, has a node, or is being deleted."""
        body = self.get("pods", name)
        metadata = body["metadata"]
        if (uid and uid != metadata["uid"] or body["spec"].get("nodeName") or metadata.get("deletionTimestamp")):
            raise ApiError(409, f"pod {name} is another one, assigned to a node, or being deleted")
        written = {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}
        self.write("pods", "MODIFIED", {**body, "metadata": written, "spec": {**body["spec"], "nodeName": node}})

    def since(self, kind: str, version: int) -> list[tuple[str, Body]]:
        """Return changes of a kind after a version; 410 if they are forgotten."""
        if version < self.oldest:
            raise ApiError(410, "too old resource version")
        history = self.history[kind]
        return history[bisect_right(history, version, key=lambda entry: number_of(entry[1])):]

    def at(self, kind: str, version: int) -> list[Body]:
        """Return objects in the order of their names, as they were at a version; 410 if that is forgotten."""
        if version < self.oldest:
            raise ApiError(410, "the continue parameter is too old")
        found = {body["metadata"]["name"]: (change, body) for change, body in self.history[kind]
                 if number_of(body) <= version}
        return [found[name][1] for name in sorted(found) if found[name][0] != "DELETED"]

    def forget(self) -> None:
        """Compact: no watch can begin before now, and no list of before can go on."""
        with self.news:
            self.oldest = self.version
            self.news.notify_all()
