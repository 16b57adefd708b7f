"""A small API server on loopback that speaks as the real one where it matters, and misbehaves on request.

Nodes and pods only: lists in pages, watches with bookmarks and 410, the binding of pods. Versions grow over all kinds,
a page belongs to the version of its list, the Binding merges annotations and is refused where the real one refuses.
"""

import base64
import copy
import json
import re
import threading
import time
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

KINDS = {"nodes": "Node", "pods": "Pod"}
PATHS = {
    "list": re.compile(r"/api/v1/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<kind>nodes|pods)"),
    "one": re.compile(r"/api/v1/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<kind>nodes|pods)/(?P<name>[^/]+)"),
    "binding": re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>pods)/(?P<name>[^/]+)/binding"),
}


class Refused(Exception):
    """An answer that is a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                       "reason": reason, "code": code}


class Store:
    """Objects with versions, and every change since `oldest`."""

    def __init__(self) -> None:
        self.version = 100
        self.oldest = 0  # changes up to this one are forgotten
        self.objects: dict[tuple[str, str, str], dict] = {}
        self.changes: list[tuple[int, str, str, dict]] = []  # version, kind, type, object
        self.news = threading.Condition()

    def write(self, kind: str, body: dict, change: str) -> dict:
        """Keep an object as it is now, or its end, under a new version."""
        with self.news:
            self.version += 1
            body = copy.deepcopy(body)
            body["metadata"]["resourceVersion"] = str(self.version)
            key = (kind, body["metadata"].get("namespace", ""), body["metadata"]["name"])
            if change == "DELETED":
                self.objects.pop(key, None)
            else:
                self.objects[key] = body
            self.changes.append((self.version, kind, change, body))
            self.news.notify_all()
            return body

    def create(self, kind: str, body: dict, namespace: str = "") -> dict:
        """Add an object; 409 if there is one of the name."""
        body = copy.deepcopy(body)
        meta = body.setdefault("metadata", {})
        if namespace or kind == "pods":
            meta["namespace"] = namespace or meta.get("namespace", "default")
        if (kind, meta.get("namespace", ""), meta["name"]) in self.objects:
            raise Refused(409, "AlreadyExists", f'{kind} "{meta["name"]}" already exists')
        meta.setdefault("uid", str(uuid.uuid4()))
        meta.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        if kind == "pods":
            body.setdefault("status", {}).setdefault("phase", "Pending")
        return self.write(kind, body, "ADDED")

    def get(self, kind: str, name: str, namespace: str = "") -> dict:
        """Return an object; 404 if there is none."""
        found = self.objects.get((kind, namespace, name))
        if found is None:
            raise Refused(404, "NotFound", f'{kind} "{name}" not found')
        return found

    def delete(self, kind: str, name: str, namespace: str = "") -> dict:
        """Remove an object."""
        return self.write(kind, self.get(kind, name, namespace), "DELETED")

    def bind(self, namespace: str, name: str, binding: dict) -> None:
        """Do what the binding of a pod does."""
        pod = self.get("pods", name, namespace)
        conflict = f'Operation cannot be fulfilled on pods/binding "{name}": '
        uid = binding.get("metadata", {}).get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            raise Refused(
                409, "Conflict", f"{conflict}Precondition failed: UID in precondition: {uid}, "
                f"UID in object meta: {pod['metadata']['uid']}")
        if pod["metadata"].get("deletionTimestamp"):
            raise Refused(409, "Conflict", f"{conflict}pod {name} is being deleted, cannot be assigned to a host")
        if node := pod.get("spec", {}).get("nodeName"):
            raise Refused(409, "Conflict", f'{conflict}pod {name} is already assigned to node "{node}"')
        if binding.get("target", {}).get("kind") not in ("Node", "", None) or not binding["target"].get("name"):
            raise Refused(422, "Invalid", "Binding is invalid: target.name: Required value")
        body = copy.deepcopy(pod)
        body["spec"]["nodeName"] = binding["target"]["name"]
        annotations = binding["metadata"].get("annotations") or {}
        if annotations:
            body["metadata"].setdefault("annotations", {}).update(annotations)
        body["status"].setdefault("conditions", []).append({"type": "PodScheduled", "status": "True"})
        self.write("pods", body, "MODIFIED")

    def since(self, kind: str, version: int) -> list[tuple[int, str, dict]]:
        """Return changes of a kind after a version; 410 if they are forgotten."""
        if version < self.oldest:
            raise Refused(410, "Expired", f"too old resource version: {version} ({self.oldest})")
        later = (one for one in self.changes if one[1] == kind and one[0] > version)
        return [(number, change, body) for number, _, change, body in later]

    def at(self, kind: str, namespace: str, version: int) -> list[dict]:
        """Return objects in the order of their names, as they were at a version; 410 if that is forgotten."""
        if version < self.oldest:
            raise Refused(410, "Expired", "The provided continue parameter is too old")
        found: dict[tuple[str, str, str], dict] = {}
        for number, its, change, body in self.changes:
            if its == kind and number <= version and namespace in ("", body["metadata"].get("namespace")):
                key = (its, body["metadata"].get("namespace", ""), body["metadata"]["name"])
                found.pop(key, None)
                if change != "DELETED":
                    found[key] = body
        return [found[key] for key in sorted(found)]

    def forget(self) -> None:
        """Compact: no watch can begin before now, and no list of before can go on."""
        with self.news:
            self.oldest = self.version
            self.news.notify_all()


class FakeApi:
    """The server.

    `trouble` maps a verb ("list", "watch", "pod", "bind") to a list of things that go wrong, one a call: a status such
    as 429; "lost" (it is done, and the answer never comes); "silent" (nothing happens for `silence_s`); an event that
    is waited for first; "cut" (the answer breaks off in the middle); "410 inside" (a watch says so in a line); "end" (a
    watch ends after its backlog).
    `calls` has the verbs as they came.
    """

    def __init__(self, bookmark_s: float = 0.2, silence_s: float = 0.5) -> None:
        self.store = Store()
        self.trouble: dict[str, list] = {}
        self.calls: list[str] = []
        self.bookmark_s = bookmark_s
        self.silence_s = silence_s
        self.is_open = True

    def next_trouble(self, verb: str):
        self.calls.append(verb)
        return self.trouble[verb].pop(0) if self.trouble.get(verb) else None


def handler_of(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    """Return a request handler that answers from a fake API."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_):
            pass

        def reply(self, code: int, body: dict, headers: dict | None = None, cut: bool = False) -> None:
            data = json.dumps(body).encode()
            head = [f"HTTP/1.1 {code} X", "Content-Type: application/json", f"Content-Length: {len(data)}"]
            head += [f"{name}: {value}" for name, value in (headers or {}).items()]
            self.wfile.write("\r\n".join([*head, "", ""]).encode() + (data[: len(data) // 2] if cut else data))
            self.close_connection = self.close_connection or cut

        def answer(self, verb: str, do, code: int = 200) -> None:
            """Do something and say so, or do what the next trouble says."""
            trouble = api.next_trouble(verb)
            if isinstance(trouble, int):
                message = f"told to answer {trouble}"
                refused = Refused(trouble, "TooManyRequests" if trouble == 429 else "InternalError", message)
                return self.reply(trouble, refused.status, {"Retry-After": "1"} if trouble == 429 else None)
            if trouble == "silent":
                time.sleep(api.silence_s)
                self.close_connection = True
                return None
            if isinstance(trouble, threading.Event):
                trouble.wait(60)
            try:
                body = do()
            except Refused as refused:
                return self.reply(refused.code, refused.status)
            if trouble == "lost":
                self.close_connection = True
                return None
            return self.reply(code, body, cut=trouble == "cut")

        def do_GET(self) -> None:
            url = urlparse(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            if found := PATHS["list"].fullmatch(url.path):
                kind, namespace = found["kind"], found["namespace"] or ""
                if query.get("watch", "").lower() in ("true", "1"):
                    return self.watch(kind, query)
                return self.answer("list", lambda: self.page(kind, namespace, query))
            if found := PATHS["one"].fullmatch(url.path):
                place = (found["kind"], found["name"], found["namespace"] or "")
                return self.answer("pod", lambda: api.store.get(*place))
            return self.reply(404, Refused(404, "NotFound", "no such path").status)

        def page(self, kind: str, namespace: str, query: dict) -> dict:
            store = api.store
            with store.news:
                token = {"version": store.version, "start": 0}
                if query.get("continue"):
                    token = json.loads(base64.b64decode(query["continue"]))
                objects = store.at(kind, namespace, token["version"])
            limit = int(query.get("limit") or 0) or len(objects) or 1
            items = objects[token["start"] : token["start"] + limit]
            meta = {"resourceVersion": str(token["version"])}
            if token["start"] + limit < len(objects):
                after = {**token, "start": token["start"] + limit}
                meta["continue"] = base64.b64encode(json.dumps(after).encode()).decode()
            return {"kind": f"{KINDS[kind]}List", "apiVersion": "v1", "metadata": meta, "items": items}

        def line(self, change: str, body: dict) -> None:
            data = json.dumps({"type": change, "object": body}).encode() + b"\n"
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def watch(self, kind: str, query: dict) -> None:
            trouble = api.next_trouble("watch")
            if isinstance(trouble, int):
                return self.reply(trouble, Refused(trouble, "Expired", f"told to answer {trouble}").status)
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.close_connection = True
            try:
                if trouble == "410 inside":
                    raise Refused(410, "Expired", "too old resource version")
                self.changes(kind, int(query["resourceVersion"]), float(query.get("timeoutSeconds", 60)), trouble)
                self.wfile.write(b"0\r\n\r\n")
            except Refused as refused:
                self.line("ERROR", refused.status)
                self.wfile.write(b"0\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass  # whoever watched has gone
            return None

        def changes(self, kind: str, version: int, seconds: float, trouble) -> None:
            store = api.store
            end_s = time.monotonic() + seconds
            while api.is_open and time.monotonic() < end_s:
                with store.news:
                    found = store.since(kind, version)
                    if not found and trouble != "end":
                        store.news.wait(api.bookmark_s)
                        found = store.since(kind, version)
                        newest = store.version
                    else:
                        newest = version
                for number, change, body in found:
                    if trouble == "cut":
                        self.wfile.write(b"64\r\n" + b'{"type": "ADDED", "obj')
                        return self.wfile.flush()
                    self.line(change, body)
                    version = number
                if trouble == "end":
                    return None
                if not found:
                    version = max(version, newest)
                    meta = {"resourceVersion": str(version), "creationTimestamp": None}
                    self.line("BOOKMARK", {"kind": KINDS[kind], "apiVersion": "v1", "metadata": meta})
            return None

        def sent(self) -> dict:
            return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

        def do_POST(self) -> None:
            body = self.sent()
            path = urlparse(self.path).path
            if found := PATHS["binding"].fullmatch(path):
                return self.answer("bind", lambda: self.bound(found, body), 201)
            if found := PATHS["list"].fullmatch(path):
                kind, namespace = found["kind"], found["namespace"] or ""
                return self.answer("create", lambda: api.store.create(kind, body, namespace), 201)
            if path == "/api/v1/namespaces":
                return self.reply(201, body)
            return self.reply(404, Refused(404, "NotFound", "no such path").status)

        def bound(self, found: re.Match, body: dict) -> dict:
            api.store.bind(found["namespace"], found["name"], body)
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    return Handler


@contextmanager
def served(api: FakeApi):
    """Serve a fake API on a free port; lend its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(api))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        api.is_open = False
        server.shutdown()
        server.server_close()
        thread.join(5)


def kubeconfig_for(address: str, path: Path, **user: str) -> Path:
    """Write a kubeconfig file for a server; fields of the user, if any, as they stand there."""
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "here",
              "clusters": [{"name": "here", "cluster": {"server": address}}], "users": [{"name": "me", "user": user}],
              "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}]}
    path.write_text(json.dumps(config))
    return path
