"""A small API server on loopback that speaks as the real one where it matters, and misbehaves on request.

Nodes, pods, groups of pods and leases only: lists in pages, watches with bookmarks and 410, the binding of pods.
Versions grow over all kinds, a page belongs to the version of its list, the Binding merges annotations and is refused
where the real one refuses.
"""

import base64
import json
import re
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

from sched_lab.fleet.live.bridge import ApiError
from tests.fleet.store import Store, number_of

KINDS = {"nodes": "Node", "pods": "Pod"}
PATHS = {
    "list": re.compile(r"/api/v1/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<kind>nodes|pods)"),
    "one": re.compile(r"/api/v1/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<kind>nodes|pods)/(?P<name>[^/]+)"),
    "lease": re.compile(r"/apis/coordination.k8s.io/v1/namespaces/[^/]+/(?P<kind>leases)(?:/(?P<name>[^/]+))?"),
    "group": re.compile(r"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/[^/]+/(?P<kind>podgroups)/(?P<name>[^/]+)"),
    "binding": re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>pods)/(?P<name>[^/]+)/binding"),
}
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


def status_of(trouble: ApiError) -> dict:
    """Return an answer that refuses."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(trouble),
            "code": trouble.status}


def checked(lease: dict) -> dict:
    """Return a lease whose times are as the real server reads them, which takes no others; 400 if they are not."""
    for name in ("acquireTime", "renewTime"):
        if not MICRO_TIME.fullmatch(lease["spec"].get(name, "")):
            raise ApiError(400, f"{name} {lease['spec'].get(name)!r} is no time in microseconds")
    return lease


class FakeApi:
    """The server.

    `trouble` maps a verb ("list", "watch", "pod", "bind", "group", "lease", "write_lease", "event") to a list of things
    that go wrong, one a call: a status such as 429; "lost" (it is done, and the answer never comes); "silent" (nothing
    happens for `silence_s`); an event that is waited for first; "cut" (the answer breaks off in the middle); "410
    inside" (a watch says so in a line); "end" (a watch ends after its backlog).
    `calls` has the verbs as they came.
    """

    def __init__(self, bookmark_s: float = 0.2, silence_s: float = 0.5) -> None:
        self.store = Store()
        self.trouble: dict[str, list] = {}
        self.calls: list[str] = []
        self.events: list[dict] = []
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

        def refuse(self, trouble: ApiError) -> None:
            headers = {"Retry-After": "1"} if trouble.status == 429 else None
            self.reply(trouble.status, status_of(trouble), headers)

        def answer(self, verb: str, do, code: int = 200) -> None:
            """Do something and say so, or do what the next trouble says."""
            trouble = api.next_trouble(verb)
            if isinstance(trouble, int):
                return self.refuse(ApiError(trouble, "as told"))
            if trouble == "silent":
                time.sleep(api.silence_s)
                self.close_connection = True
                return None
            if isinstance(trouble, threading.Event):
                trouble.wait(60)
            try:
                body = do()
            except ApiError as refused:
                return self.refuse(refused)
            if trouble == "lost":
                self.close_connection = True
                return None
            return self.reply(code, body, cut=trouble == "cut")

        def do_GET(self) -> None:
            url = urlparse(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            if found := PATHS["list"].fullmatch(url.path):
                if query.get("watch", "").lower() in ("true", "1"):
                    return self.watch(found["kind"], query)
                return self.answer("list", lambda: self.page(found["kind"], query))
            return self.act()

        def page(self, kind: str, query: dict) -> dict:
            store = api.store
            with store.news:
                token = {"version": store.version, "start": 0}
                if query.get("continue"):
                    token = json.loads(base64.b64decode(query["continue"]))
                objects = store.at(kind, token["version"])
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
                return self.refuse(ApiError(trouble, "as told"))
            self.wfile.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.close_connection = True
            try:
                if trouble == "410 inside":
                    raise ApiError(410, "as told")
                self.changes(kind, int(query["resourceVersion"]), float(query.get("timeoutSeconds", 60)), trouble)
                self.wfile.write(b"0\r\n\r\n")
            except ApiError as refused:
                self.line("ERROR", status_of(refused))
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
                for change, body in found:
                    if trouble == "cut":
                        self.wfile.write(b"64\r\n" + b'{"type": "ADDED", "obj')
                        return self.wfile.flush()
                    self.line(change, body)
                    version = number_of(body)
                if trouble == "end":
                    return None
                if not found:
                    version = max(version, newest)
                    meta = {"resourceVersion": str(version), "creationTimestamp": None}
                    self.line("BOOKMARK", {"kind": KINDS[kind], "apiVersion": "v1", "metadata": meta})
            return None

        def act(self) -> None:
            """Do what is asked of one object."""
            sent = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            said = sent.get("metadata", {})
            path = urlparse(self.path).path
            if path == "/api/v1/namespaces":
                return self.reply(201, sent)
            if path.endswith("/events"):
                return self.answer("event", lambda: api.events.append(sent) or sent, 201)
            way, found = next(((way, found) for way, pattern in PATHS.items() if (found := pattern.fullmatch(path))),
                              ("", None))
            of = found.groupdict() if found else {}
            kind, name, store = of.get("kind"), of.get("name"), api.store
            what = {
                **{f"GET {read}": (verb, lambda: store.get(kind, name))
                   for read, verb in (("one", "pod"), ("lease", "lease"), ("group", "group"))},
                "POST binding": ("bind", lambda: self.bound(name, sent)),
                "POST list": ("create", lambda: store.create(kind, sent)),
                "POST lease": ("write_lease", lambda: store.create(kind, checked(sent))),
                "PUT lease": ("write_lease", lambda: store.replace(kind, name, checked(sent))),
                "PATCH one": ("patch", lambda: store.annotate(
                    kind, name, said["annotations"], said.get("resourceVersion", ""))),
                "DELETE one": ("delete", lambda: store.delete(kind, name))}.get(f"{self.command} {way}")
            if what is None:
                return self.refuse(ApiError(404, "no such path"))
            return self.answer(*what, 201 if self.command == "POST" else 200)

        do_POST = do_PUT = do_PATCH = do_DELETE = act

        def bound(self, name: str, body: dict) -> dict:
            said = body["metadata"]
            api.store.bind(name, said.get("uid", ""), body["target"]["name"], said.get("annotations") or {})
            return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    return Handler


@contextmanager
def served(api: FakeApi, port: int = 0):
    """Serve a fake API on a port, or on a free one; lend its address."""
    api.is_open = True
    server = ThreadingHTTPServer(("127.0.0.1", port), handler_of(api))
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


def kubeconfig_of(cluster: dict, **user: str) -> str:
    """Text of a kubeconfig file; fields of the cluster and of the user, if any, as they stand there."""
    return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "here",
                       "clusters": [{"name": "here", "cluster": cluster}], "users": [{"name": "me", "user": user}],
                       "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}]})


def kubeconfig_for(address: str, path: Path, **user: str) -> Path:
    """Write a kubeconfig file for a server; its certificate, if it has one, is its own and not checked."""
    path.write_text(kubeconfig_of({"server": address, "insecure-skip-tls-verify": True}, **user))
    return path
