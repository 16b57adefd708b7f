"""A list is a photograph and a watch is a film; joined at one version number they miss nothing, and when the film tears there is a new photograph."""

# A module, written by hand.

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...lab.frames import InputError
from ..read.objects import dig, text_at
from .bridge import ApiError, Objects, uid_of
from .core import Event, LiveNode, LivePod, NodeGone, NodeSeen, PodGone, PodSeen

__all__ = ['follow', 'KubernetesApi']


def number_of(version: str) -> int | None:
    """Number of a version; None if it is not one that can be compared."""
    return int(version) if version.isascii() and version.isdigit() and len(version) < 19 else None


def later(version: str, other: str) -> str:
    """The later of two versions; the other if they cannot be compared."""
    numbers = [number_of(version), number_of(other)]
    if not other or (None not in numbers and numbers[0] > numbers[1]):  # type: ignore[operator]
        return version
    return other


class Informer:
    """What the cluster was told of the objects of a kind, and the events that are still to tell.

    Parameters
    ----------
    kind : "nodes" or "pods"
    objects : reads them
    """

    def __init__(self, kind: str, objects: Objects) -> None:
        self.kind = kind
        self.objects = objects
        self.told: dict[str, LiveNode | LivePod] = {}
        self.numbers: dict[str, int] = {}  # of the last change, of objects that are gone, too
        self.floor = -1  # what is not later than the last list is in it

    def key_of(self, body: dict[str, Any]) -> str:
        """What an object is known by: a pod of the same name may be another."""
        return uid_of(body) if self.kind == "pods" else text_at(body, "metadata", "name")

    def keys(self) -> list[str]:
        """All that the cluster was told of, also by others: a bridge asks about pods, too."""
        others = self.objects.told if self.kind == "pods" else {}
        return list({**self.told, **others})

    def is_news(self, key: str, body: dict[str, Any]) -> bool:
        """Whether a change is later than what is known of its object; it is known then."""
        number = number_of(text_at(body, "metadata", "resourceVersion"))
        if number is None:
            return True
        if number <= max(self.floor, self.numbers.get(key, -1)):
            return False
        self.numbers[key] = number
        return True

    def gone(self, key: str) -> Event:
        """The event that an object is not there any more."""
        self.told.pop(key, None)
        if self.kind == "pods":
            self.objects.told.pop(key, None)
            return PodGone(key)
        self.objects.remember(key, None)
        return NodeGone(key)

    def changed(self, change: str, body: dict[str, Any]) -> Event | None:
        """The event of a change; None if it changes nothing that counts."""
        key = self.key_of(body)
        if change == "BOOKMARK" or not key or not self.is_news(key, body):
            return None
        if change == "DELETED":
            return self.gone(key)
        seen = self.objects.node(body) if self.kind == "nodes" else self.objects.pod(body)
        if seen is None:
            return self.gone(key) if key in self.told or key in self.objects.told else None
        if self.told.get(key) == seen:
            return None
        self.told[key] = seen
        return NodeSeen(seen) if isinstance(seen, LiveNode) else PodSeen(seen)

    def listed(self, bodies: Iterable[dict[str, Any]], version: str,
               before: Iterable[str]) -> Iterator[Event]:
        """Events that lead from what was told to what a list of some version shows.

        Parameters
        ----------
        bodies, version : the objects of the list, and its version
        before : keys of what was told before the list was asked for, gone if it is not in it
        """
        present = {self.key_of(body): body for body in bodies}
        for key in [key for key in before if key not in present]:
            yield self.gone(key)
        self.numbers.clear()
        self.floor = -1
        for body in present.values():
            if (event := self.changed("ADDED", body)) is not None:
                yield event
        self.floor = number_of(version) or -1


LOG = logging.getLogger("sched_lab.serve")
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 30.0


def pause_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**min(failures - 1, 20))


def follow(api: Any, kind: str, tell: Callable[[Any], object], pause: Callable[[float], None],
           objects: Objects | None = None, relist_after: int = 12) -> Iterator[str]:
    """Tell of every node or pod that comes, changes or goes, for ever.

    Parameters
    ----------
    api : lists and watches, as `KubernetesApi`
    kind : "nodes" or "pods"; nodes should be listed first, since shares in MiB need them
    tell : takes an event of the live cluster
    pause : waits for some seconds
    objects : the reader of the bridge that is told; None for one of its own
    relist_after : so many watches, after which there is a new list

    Yields
    ------
    what the step was: "listed", "changed", "unchanged", or "paused"
    """
    informer = Informer(kind, objects or Objects())
    version = ""
    failures = watches = 0
    while True:
        failures += 1  # until something arrives
        try:
            if not version or watches >= relist_after:
                before = informer.keys()
                bodies, version = api.list(kind)
                watches = 0
                for event in informer.listed(bodies, version, before):
                    tell(event)
                yield "listed"
            watches += 1
            for change, body in api.watch(kind, version):
                failures = 0
                version = later(version, text_at(body, "metadata", "resourceVersion"))
                news = informer.changed(change, body)
                if news is not None:
                    tell(news)
                yield "unchanged" if news is None else "changed"
        except ApiError as trouble:
            if not version:  # we are not ready before it works
                LOG.warning("cannot list %s: %s", kind, trouble)
            version = "" if trouble.status == 410 else version
            failures = max(failures, 1)
        if failures:
            pause(pause_s(failures))
            yield "paused"


PAGE = 500
CONNECT_S = 5.0
LIST_S = 60.0
CALL_S = 3.0  # the scheduler waits for the answer
WATCH_S = 300
GROUP_VERSIONS = {  # of what says how many pods start together, where it is not v1alpha1
    ("scheduling.k8s.io", "PodGroup"): "v1alpha2", ("scheduling.volcano.sh", "PodGroup"): "v1beta1",
    ("scheduling.run.ai", "PodGroup"): "v2alpha2"}
SILENCE_S = 150.0  # a bookmark comes about once a minute


@contextmanager
def api_errors() -> Iterator[None]:
    """Turn what the official client raises into `ApiError`."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ApiException as trouble:
        said = parsed_or_none(trouble.body or "")
        wait = str((trouble.headers or {}).get("Retry-After", ""))
        raise ApiError(trouble.status or 0, text_at(said, "message") or str(trouble.reason),
                       float(wait) if wait.isdigit() else 0.0) from None
    except (HTTPError, OSError) as trouble:
        raise ApiError(0, f"{type(trouble).__name__}: {trouble}") from None


def answered(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The response of a call of the official client.

    Raises
    ------
    ApiError : the server refused, or there was no answer
    """
    with api_errors():
        return call(*arguments, _preload_content=False, **named)


def parsed_or_none(text: str | bytes) -> Any:
    """Value of a JSON text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def object_in(response: Any) -> dict[str, Any]:
    """The object in a response.

    Raises
    ------
    ApiError : it broke off, or is none
    """
    with api_errors():
        body = parsed_or_none(response.data)
    if not isinstance(body, dict):
        raise ApiError(0, "the answer is no JSON object")
    return body


def lines_of(response: Any) -> Iterator[bytes]:
    """Lines of a response as they come; a last one that is cut short is left out.

    Raises
    ------
    ApiError : the connection broke
    """
    rest = b""
    try:
        with api_errors():
            for chunk in response.stream(2**16):
                *lines, rest = (rest + chunk).split(b"\n")
                yield from filter(None, lines)
    finally:
        response.close()


def changes_in(lines: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Changes of a watch.

    Raises
    ------
    ApiError : the server says so, or a line is no change
    """
    for line in lines:
        said = parsed_or_none(line)
        change = text_at(said, "type")
        body = dig(said, "object")
        if change == "ERROR":
            raise ApiError(int(dig(body, "code") or 500), text_at(body, "message"))
        if not change or not isinstance(body, dict):
            raise ApiError(0, "a line of the watch is no change")
        yield change, body


def client_of(kubeconfig: str | Path | None) -> Any:
    """The official client, by a kubeconfig file, or by what a pod is given, or by the default file.

    Raises
    ------
    InputError : there is no way to a cluster
    """
    from kubernetes import client, config

    settings = client.Configuration()
    try:
        load_into(settings, config, kubeconfig)
        is_url = urlsplit(settings.host).scheme in ("http", "https")
    except (config.ConfigException, OSError) as trouble:
        raise InputError(f"no way to a cluster: {trouble}", file=kubeconfig,
                         mend="give a kubeconfig file") from None
    except Exception as trouble:  # the client expects the right types everywhere
        raise InputError(f"no way to a cluster: this is no kubeconfig file "
                         f"({type(trouble).__name__}: {str(trouble)[:200]})", file=kubeconfig,
                         mend="give a kubeconfig file") from None
    if not is_url:
        raise InputError(f"no way to a cluster: the server {settings.host!r:.100} is no URL",
                         file=kubeconfig, mend="write such as https://10.0.0.1:6443")
    settings.retries = False
    return client.CoreV1Api(client.ApiClient(settings))


def load_into(settings: Any, config: Any, kubeconfig: str | Path | None) -> None:
    """Read a kubeconfig file; without one, the service account of a pod, or the default file."""
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=settings)
            return
    except config.ConfigException:
        pass  # not in a cluster
    config.load_kube_config(kubeconfig and str(kubeconfig), client_configuration=settings,
                            persist_config=False)


class KubernetesApi:
    """An API server, through the official client; each method may raise `ApiError`.

    Parameters
    ----------
    kubeconfig : file; None for the service account of the pod, or the default file outside one
    connect_s : to connect for a call that a scheduler waits for; the answer may take `CALL_S`

    Raises
    ------
    InputError : there is no way to a cluster
    """

    def __init__(self, kubeconfig: str | Path | None = None, connect_s: float = CONNECT_S) -> None:
        from kubernetes import client

        self._core = client_of(kubeconfig)
        self._connect_s = connect_s
        self._coordination = client.CoordinationV1Api(self._core.api_client)
        self._custom = client.CustomObjectsApi(self._core.api_client)
        self._lists = {"nodes": self._core.list_node,
                       "pods": self._core.list_pod_for_all_namespaces}

    def list(self, kind: str) -> tuple[list[dict[str, Any]], str]:
        """Objects of a kind, "nodes" or "pods", and the version of the list."""
        try:
            return listed(self._lists[kind], PAGE)
        except ApiError as trouble:
            if trouble.status != 410:
                raise
        return listed(self._lists[kind], None)

    def watch(self, kind: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Changes since a version: ADDED, MODIFIED, DELETED or BOOKMARK, and the object.

        Parameters
        ----------
        kind : "nodes" or "pods"
        version : of a list, or of the last change that was taken in
        """
        response = answered(
            self._lists[kind], watch=True, resource_version=version, timeout_seconds=WATCH_S,
            allow_watch_bookmarks=True, _request_timeout=(CONNECT_S, SILENCE_S))
        return changes_in(lines_of(response))

    def bind(self, namespace: str, name: str, uid: str, node: str,
             annotations: dict[str, str]) -> None:
        """Give a pod its node and annotations, in one write.

        Parameters
        ----------
        namespace, name : of the pod
        uid : the pod must have it, if it is not empty
        node : name
        annotations : are merged into those of the pod
        """
        written = {"name": name, "namespace": namespace, "annotations": annotations}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "target": target,
                "metadata": {**written, "uid": uid} if uid else written}
        self._call(self._core.create_namespaced_pod_binding, name, namespace, body)

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A pod as it is now; None if there is none.

        Parameters
        ----------
        namespace, name : of the pod
        """
        return self._found(self._core.read_namespaced_pod, name, namespace)

    def group(self, program: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        """What says how many pods of a group start together; None if there is nothing.

        Parameters
        ----------
        program, kind, namespace, name : of it, as of `Group`
        """
        plural = f"{kind.lower()}s"
        version = GROUP_VERSIONS.get((program, kind), "v1alpha1")
        return self._found(partial(self._custom.get_namespaced_custom_object, program, version), namespace, plural, name)

    def node(self, name: str) -> dict[str, Any] | None:
        """A node as it is now; None if there is none."""
        return self._found(self._core.read_node, name)

    def annotate_node(self, name: str, annotations: dict[str, str | None], version: str) -> None:
        """Write annotations of a node, if it is still as it was read.

        Parameters
        ----------
        name : of the node
        annotations : None for one that goes
        version : over which they are written
        """
        body = {"metadata": {"annotations": annotations, "resourceVersion": version}}
        self._call(self._core.patch_node, name, body)

    def lease(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A lease as it is now; None if there is none.

        Parameters
        ----------
        namespace, name : of the lease
        """
        return self._found(self._coordination.read_namespaced_lease, name, namespace)

    def write_lease(self, namespace: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        """Write a lease, if it is still as it was read; return it as it is then.

        Parameters
        ----------
        namespace, name : of the lease
        body : with the version over which it is written; without one there must be none yet
        """
        if "resourceVersion" in body["metadata"]:
            return self._call(self._coordination.replace_namespaced_lease, name, namespace, body)
        return self._call(self._coordination.create_namespaced_lease, namespace, body)

    def event(self, namespace: str, body: dict[str, Any]) -> None:
        """Write an event.

        Parameters
        ----------
        namespace, body : of the event
        """
        self._call(self._core.create_namespaced_event, namespace, body)

    def _call(self, call: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """The object that a call returns which somebody waits for."""
        return object_in(answered(call, *arguments, _request_timeout=(self._connect_s, CALL_S)))

    def _found(self, call: Callable[..., Any], *names: str) -> dict[str, Any] | None:
        """The object that a call reads; None if there is none.

        Raises
        ------
        ApiError : the server refused
        """
        try:
            return self._call(call, *names)
        except ApiError as trouble:
            if trouble.status == 404:
                return None
            raise


def listed(call: Callable[..., Any], page: int | None) -> tuple[list[dict[str, Any]], str]:
    """Objects of a list and its version, page by page.

    Raises
    ------
    ApiError : the server refused, or pages expired (410)
    """
    bodies: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        found = object_in(answered(call, limit=page, _continue=after,
                                   _request_timeout=(CONNECT_S, LIST_S)))
        bodies += [one for one in found.get("items") or [] if isinstance(one, dict)]
        after = text_at(found, "metadata", "continue") or None
        if after is None:
            return bodies, text_at(found, "metadata", "resourceVersion")
