"""The bridge behind HTTP: who may ask, how much and for how long; hostile callers; an orderly end."""
import base64
import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

from sched_lab.fleet.live.bridge import ApiError
from sched_lab.fleet.live.core import NodeSeen, PodGone
from sched_lab.fleet.live.follow import follow
from sched_lab.fleet.live.serve import Extender
from sched_lab.lab.access import Access, Secret, listen, own_secret
from sched_lab.lab.frames import InputError, OutputError
from sched_lab.lab.web import Application, Limits, serve
from tests.fleet.objects import node, pod
from tests.waiting import HANG_S, until

PATIENT = Limits(body_bytes=1 << 20, held_bytes=3 << 20, header_s=HANG_S, body_s=HANG_S, idle_s=HANG_S,
                 answer_s=HANG_S, connections=40, requests=8, drain_s=0.3, finish_s=HANG_S)
QUICK = Limits(**{**vars(PATIENT), "header_s": 1.0, "body_s": 1.0})
OPEN = Access(is_insecure=True)
POD = {"Pod": {"metadata": {"name": "p", "namespace": "lab", "uid": "u"}}, "NodeNames": ["n1", "n0"]}
BIND = {"PodName": "p", "PodNamespace": "lab", "PodUID": "u", "Node": "n0"}


class StandIn:
    """Answers as the bridge does: the first node by name; a bind that a test can hold up.

    It is its own cluster, journal and API server.
    """

    mode = "decide"
    trouble = ""

    def __init__(self):
        self.live = self.journal = self
        self.told = []
        self.may_bind = threading.Event()
        self.may_bind.set()
        self.begun = threading.Event()
        self.is_closed = False
        self.refusals = {"gpu": 2}
        self.num_bytes = lambda: 7

    def filter(self, request, at_s):
        names = request.get("NodeNames")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError("NodeNames is no list of names")
        return {"NodeNames": sorted(names)[:1], "FailedNodes": {}, "Error": ""}

    def prioritize(self, request, at_s):
        if request.get("NodeNames") == ["bug"]:
            raise ZeroDivisionError("a bug")
        return [{"Host": name, "Score": 1} for name in request.get("NodeNames", [])]

    def binding(self, request, at_s):
        try:
            yield SimpleNamespace(method="pause", arguments=(0.0,))
            yield SimpleNamespace(method="bind", arguments=(request.get("Node"),))
        except ConnectionError as error:
            return {"Error": f"it failed: {error}"}
        return {"Error": ""}

    def settling(self, at_s):
        return {}
        yield

    looking_at_group = lambda self, request, at_s: self.settling(at_s)  # noqa: E731

    def begin_term(self):
        self.told.append("a new term")

    def is_idle(self):
        return True

    def bind(self, node):
        """Bind as the API server does."""
        self.begun.set()
        assert self.may_bind.wait(HANG_S)
        if node == "bad":
            raise ConnectionError("no")

    def tell(self, event):
        if event == "broken":
            raise ValueError("a bug")
        self.told.append(event)

    def gauges(self):
        return {"eopc_w": 1500.0, "stranded_gpu_milli": 2500, "lapsed": 3, "reservations": 1}

    def close(self):
        self.is_closed = True


class Running:
    """A server in a thread, and what its callers see."""

    def __init__(self, limits=PATIENT, access=OPEN, warm=lambda: None,
                 prepare=lambda extender: None, rest_s=0.0, lease=None):
        self.bridge = StandIn()
        self.extender = Extender(self.bridge, self.bridge, limits, warm=warm, rest_s=rest_s, lease=lease)
        prepare(self.extender)
        self.listener = listen(access, "reserve GPUs")
        self.port = self.listener.port
        self.application = Application(self.extender, self.listener.guard)
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self):
        with contextlib.suppress(ValueError, RuntimeError):  # what failed is in `health`
            serve(self.extender, self.listener, self.application)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.extender.health.stop(0)
        self.thread.join(HANG_S)
        assert not self.thread.is_alive()

    def ready(self):
        until(lambda: self.get("/readyz")[0] == 200, "it was not ready")
        return self

    def ask(self, verb, content, method="POST", headers=None):
        """Status and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        with contextlib.closing(connection):
            body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
            connection.request(method, f"/{verb}", body, {"Content-Type": "application/json"} | (headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()

    def get(self, path, headers=None):
        return self.ask(path[1:], None, "GET", headers)

    def raw(self, data=b""):
        """Open a socket and send this."""
        one = socket.create_connection(("127.0.0.1", self.port), timeout=HANG_S)
        one.sendall(data)
        return one


@pytest.fixture(scope="module")
def running():
    with Running() as one:
        yield one.ready()


@pytest.fixture(scope="module")
def quick():
    """Start a server that waits a second for a head and for a body."""
    with Running(QUICK) as one:
        yield one.ready()


def heard_until_closed(one):
    """All that a server sends before it hangs up."""
    parts = b""
    with contextlib.suppress(ConnectionResetError):
        while data := one.recv(65536):
            parts += data
    return parts


def head(verb, length, more=b""):
    return (b"POST /%s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n"
            % (verb, length, more))


CHUNKED = head(b"filter", 0).replace(b"content-length: 0", b"transfer-encoding: chunked")


# --- the protocol

def test_the_three_verbs_answer(running):
    assert running.ask("filter", POD) == (200, b'{"NodeNames":["n0"],"FailedNodes":{},"Error":""}')
    assert json.loads(running.ask("prioritize", POD)[1]) == [{"Host": "n1", "Score": 1}, {"Host": "n0", "Score": 1}]
    assert running.ask("bind", BIND) == (200, b'{"Error":""}')
    assert json.loads(running.ask("bind", BIND | {"Node": "bad"})[1]) == {"Error": "it failed: no"}
    body = json.dumps(POD).encode()
    pieces = []
    with running.raw() as one:  # where Nagle's algorithm is on, headers and body come apart each time, 40 ms later
        for _ in range(20):
            answer, count = b"", 0
            one.sendall(head(b"filter", len(body)) + body)
            while not answer.endswith(b'"Error":""}'):
                answer += one.recv(65536)
                count += 1
            pieces.append(count)
    assert min(pieces) == 1


def test_a_mistake_of_ours_is_told_to_the_log_alone(running, caplog):
    status, text = running.ask("prioritize", {"NodeNames": ["bug"]})
    assert status == 500 and b"ZeroDivision" not in text and b"log" in text
    assert "ZeroDivisionError" in caplog.text
    assert running.ask("filter", POD)[0] == 200


# --- hostile callers

@pytest.mark.parametrize(("body", "status"), [
    (b"", 400), (b"{", 400), (b"[" * 100_000, 400), (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
    (b"[]", 400), (b"null", 400), (b'"x"', 400), (b'{"NodeNames": NaN}', 400), (b'{"NodeNames": "\xff\xfe"}', 400),
    (b'{"NodeNames": [1]}', 400), (b'{"NodeNames": "\\ud800"}', 400), (b"{}", 400),
    (b'{"NodeNames": ["a"], "NodeNames": ["b"]}', 200)])
def test_what_is_no_question_is_refused(running, body, status):
    found, text = running.ask("filter", body)
    assert found == status and b"Traceback" not in text and (status == 200 or b'"Error":' in text)


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "filter", 405), ("PUT", "bind", 405), ("DELETE", "prioritize", 405), ("POST", "healthz", 405),
    ("POST", "", 404), ("POST", "filter/", 404), ("POST", "preempt", 404), ("GET", "../etc/passwd", 404),
    ("BREW", "filter", 400), ("POST", "filter?x=1", 200)])
def test_other_methods_and_paths(running, method, path, status):
    assert running.ask(path, POD, method)[0] == status


@pytest.mark.parametrize(("data", "status"), [
    (b"\x16\x03\x01\x02\x00\x01\x00", 400), (b"HELLO\r\n\r\n", 400), (b"\0" * 1000, 400),
    (head(b"filter", 1 << 40), 413), (head(b"filter", 100) + b"{", 408)])
def test_what_is_no_http_or_too_long_or_slow_is_refused(quick, data, status):
    with quick.raw(data) as one:
        assert b" %d " % status in heard_until_closed(one)


def test_a_slow_head_is_cut_off(quick):
    """Also if a byte comes from time to time, or nothing but empty lines."""
    for first, drip in ((b"", b""), (b"POST /filter HTTP/1.1\r\n", b"a"), (b"", b"\r\n")):

        def is_cut_off(one, drip=drip):
            try:
                one.sendall(drip)
                return one.recv(1000) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        with quick.raw(first) as one:
            one.settimeout(0.05)
            until(lambda one=one: is_cut_off(one))


@pytest.mark.parametrize("step", [1 << 20, 5000])
def test_a_head_may_have_so_many_bytes_and_no_more(running, step):
    """Whether it comes in one piece or in several; also after another request on the connection."""
    line = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\na: "
    for excess, status in ((0, b" 200 "), (1, b" 431 "), (400_000, b" 431 ")):
        whole = line + b"b" * (PATIENT.header_bytes + excess - len(line)) + b"\r\n\r\n"
        for is_first in (True, False):
            connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=HANG_S)
            with contextlib.closing(connection):
                connection.request("GET", "/metrics")
                assert connection.getresponse().read()
                with running.raw() if is_first else connection.sock as one:
                    with contextlib.suppress(OSError):  # it hangs up before all is sent
                        for start in range(0, len(whole), step):
                            one.sendall(whole[start:start + step])
                            time.sleep(0.001)
                    answer = heard_until_closed(one)
            assert status in answer[:20] or (excess and not answer)  # lost with what was not read


def test_one_request_at_a_time(running):
    """What is sent after a request and before its answer ends the connection, so that it fills no memory."""
    body = json.dumps(POD).encode()
    ask = head(b"filter", len(body)) + body
    get = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    for data in (ask + ask, ask + b"GET / HTTP", get + get):
        with running.raw(data) as one:
            assert heard_until_closed(one).startswith(b"HTTP/1.1 200 ")
    with running.raw(CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)) as one:
        answer = heard_until_closed(one)
    assert answer.startswith(b"HTTP/1.1 200 ") and b"connection: close" in answer and b'"n0"' in answer


@pytest.mark.parametrize(("begin", "part"), [
    (b"POST /filter HTTP/1.1\r\n", b"a: " + b"b" * 50_000 + b"\r\n"),
    (CHUNKED, b"4000\r\n" + b" " * 0x4000 + b"\r\n"), (CHUNKED + b"0\r\n", b"a: " + b"b" * 9000 + b"\r\n")])
def test_endless_heads_chunks_and_trailers_are_cut_off(running, begin, part):
    with running.raw(begin) as one:
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 50 << 20:
                one.sendall(part)
                sent += len(part)
        assert sent < 20 << 20


def test_bodies_together_are_bounded(quick):
    """Held bytes never exceed the limit, and are given back."""
    most = []
    held = [quick.raw(head(b"filter", 1 << 20) + b" " * (900 << 10)) for _ in range(8)]
    for one in held:
        most.append(quick.extender.held_bytes)
        with one:
            heard_until_closed(one)
    assert max(most) <= QUICK.held_bytes
    until(lambda: quick.extender.held_bytes == 0 and quick.extender.running == 0)
    assert quick.ask("filter", POD)[0] == 200


def test_probes_are_answered_whoever_holds_all_connections():
    """And whoever works: of those who hold a connection the idle go, the oldest first, and none stays for ever."""
    heads = (b"", b"GET /nope HTTP/1.1\r\nhost: localhost\r\n", b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
    with Running() as one:
        one.ready().bridge.may_bind.clear()
        body = json.dumps(BIND).encode()
        work = [one.raw(head(b"bind", len(body)) + body) for _ in range(PATIENT.requests)]
        until(lambda: one.extender.running == PATIENT.requests)
        for first in heads:
            crowd = [one.raw(first) for _ in range(60)]
            assert one.ask("filter", POD)[0] == 503
            for _ in range(5):
                assert one.get("/healthz") == (200, b"ok\n") and one.get("/readyz")[0] == 200
            assert len(one.application.connections) <= PATIENT.connections
            for other in crowd:
                other.close()
        one.bridge.may_bind.set()
        assert all(b'{"Error":""}' in other.recv(1000) for other in work)
        for other in work:
            other.close()
        until(lambda: not one.application.connections)
        assert one.ask("filter", POD)[0] == 200


def test_who_has_shown_a_token_goes_last(tmp_path):
    (tmp_path / "token").write_text("first")
    with Running(access=Access(token_file=tmp_path / "token")) as one:
        known = http.client.HTTPConnection("127.0.0.1", one.ready().port, timeout=HANG_S)
        for _ in range(2):
            known.request("GET", "/metrics", headers={"Authorization": "Bearer first"})
            assert known.getresponse().read() and known.sock is not None
            crowd = [one.raw(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n") for _ in range(100)]
            assert one.get("/healthz")[0] == 200 and len(one.application.connections) <= PATIENT.connections
            for other in crowd:
                other.close()
        known.close()


def test_an_answer_that_nobody_fetches_is_dropped():
    names = json.dumps({"NodeNames": ["n" * 50] * 15_000}).encode()
    limits = Limits(**{**vars(PATIENT), "answer_s": 0.5, "idle_s": 0.5})
    with Running(limits) as one, one.ready().raw() as deaf:
        with contextlib.suppress(OSError):
            for _ in range(30):
                deaf.settimeout(0.2)
                deaf.sendall(head(b"prioritize", len(names)) + names)
        until(lambda: not one.application.connections)


# --- who may ask

def test_a_token_is_asked_for_and_read_again(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    with Running(access=Access(token_file=file)) as one:
        one.ready()
        basic = base64.b64encode(b"any:first").decode()
        for shown, status in (("Bearer first", 200), ("bearer first", 200), (f"Basic {basic}", 200), ("", 401),
                              ("Bearer", 401), ("Bearer firs", 401), ("Bearer second", 401), ("Basic !", 401),
                              ("Digest first", 401), ("Bearer \xff", 401)):
            headers = {"Authorization": shown} if shown else {}
            assert one.ask("filter", POD, headers=headers)[0] == status, shown
            assert one.ask("metrics", None, "GET", headers)[0] == status
        other = tmp_path / "new"
        other.write_text("second")
        os.replace(other, file)
        assert one.ask("filter", POD, headers={"Authorization": "Bearer first"})[0] == 401
        assert one.ask("filter", POD, headers={"Authorization": "Bearer second"})[0] == 200
        file.unlink()
        assert one.ask("filter", POD, headers={"Authorization": "Bearer second"})[0] == 401
        file.write_text("")
        assert one.ask("filter", POD, headers={"Authorization": "Bearer "})[0] == 401
        assert one.get("/healthz")[0] == 200


def test_a_token_file_that_says_nothing_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Secret(tmp_path / "absent")
    (tmp_path / "empty").write_text(" \n")
    with pytest.raises(InputError, match="no token"):
        Secret(tmp_path / "empty")


def test_others_reach_us_only_if_something_is_asked_for():
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        Access(host).check("reserve GPUs")
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(InputError, match="reserve GPUs"):
            Access(host).check("reserve GPUs")
        Access(host, is_insecure=True).check("reserve GPUs")
    with pytest.raises(InputError, match="--host is empty"):
        Access("", is_insecure=True).check("reserve GPUs")


@pytest.mark.parametrize("host", ["a" * 70, "::g"])
def test_an_address_that_is_none_is_one_sentence(host):
    with pytest.raises(InputError, match="cannot listen on"):
        listen(Access(host, is_insecure=True), "reserve GPUs")


def test_a_token_is_made_where_nothing_else_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for access in (Access(is_insecure=True), Access(token_file=tmp_path / "own")):
        (tmp_path / "own").write_text("own")
        assert not access.guard(asks=True).secret or access.guard(asks=True).secret.token == b"own"
    assert not Access().guard(asks=False).asks and not (tmp_path / "sched_lab").exists()
    first = Access().guard(asks=True).secret
    assert len(first.token) == 64 and first.path == tmp_path / "sched_lab" / "token"
    assert first.path.stat().st_mode & 0o777 == 0o600 and [*first.path.parent.iterdir()] == [first.path]
    assert own_secret().token == first.token  # at the next start, too
    monkeypatch.setenv("XDG_STATE_HOME", str(first.path))  # which is no folder
    with pytest.raises(OutputError, match="give --token-file"):
        own_secret()


def test_nobody_binds_who_has_shown_nothing():
    """In mode observe nobody is asked; a bind is passed on, so its caller has to show something."""
    with Running(access=Access()) as one:
        assert one.ready().ask("filter", POD)[0] == 200
        status, text = one.ask("bind", BIND)
        assert status == 403 and b"--token-file" in text


OURS = ("localhost", "localhost:1", "LOCALHOST", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:8888")
FOREIGN = ("evil.example", "evil.example:8888", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]",
           "0.0.0.0", "", "x", "localhost@evil.example", "\xff")
ORIGINS = ("http://evil.example", "https://evil.example:8888", "null", "http://localhost:1", "", "file://",
           "http://localhost.evil.example", "moz-extension://abc")


@pytest.mark.parametrize("path", ["filter", "metrics", "nope"])
def test_other_names_and_other_pages_are_refused(running, path):
    """A page in a browser can send requests here, and let a name of its own lead here; it cannot hide either."""
    method = "POST" if path == "filter" else "GET"
    answered = {"filter": 200, "metrics": 200, "nope": 404}[path]
    for host in OURS:
        assert running.ask(path, POD, method, {"Host": host})[0] == answered, host
        origin = {"Host": host, "Origin": f"http://{host}"}
        assert running.ask(path, POD, method, origin)[0] == answered, host
    for host in FOREIGN:
        status, text = running.ask(path, POD, method, {"Host": host})
        assert status == 421 and b"no name of this server" in text, host
    for origin in ORIGINS:
        status, text = running.ask(path, POD, method, {"Origin": origin})
        assert status == 403 and b"pages" in text, origin
    two = f"{method} /{path} HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n".encode()
    for data in (two, two.replace(b"host: localhost\r\n", b"")):
        with running.raw(data) as one:
            assert b" 400 " in heard_until_closed(one)


@pytest.mark.parametrize(("kind", "status"), [
    *((kind, 415) for kind in ("", "text/plain", "text/plain; application/json", "application/jsonp",
                               "application/x-www-form-urlencoded", "multipart/form-data")),
    ("application/json; charset=utf-8", 200), ("Application/JSON", 200)])
def test_a_body_that_a_page_may_send_unasked_is_refused(running, kind, status):
    assert running.ask("filter", POD, headers={"Content-Type": kind})[0] == status


def test_names_of_a_guarded_server_are_any_and_of_another_as_allowed():
    token = Access("0.0.0.0", is_insecure=True, hosts=("Sched-Lab.svc",)).guard(asks=True)
    assert [token.is_ours(host) for host in ("sched-lab.svc", "sched-lab.svc:8888", "10.0.0.1", "evil.example")] == [
        True, True, True, False]
    assert Access("0.0.0.0", client_ca="ca").guard(asks=True).is_ours("any.name")
    assert not Access("localhost", client_ca="ca").guard(asks=True).is_ours("any.name")


OPENSSL = shutil.which("openssl")


def signed(folder, name, ca=None):
    """Make a key and a certificate, signed by an authority or by itself."""
    words = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key", "-out", f"{name}.crt"]
    words += ["-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-addext", "basicConstraints=CA:FALSE"] if ca else []
    subprocess.run(words, cwd=folder, check=True, capture_output=True)


@pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates, and is not on this machine")
def test_certificates_are_asked_for_checked_and_renewed(tmp_path):
    for name, ca in (("ca", None), ("server", "ca"), ("client", "ca"), ("stranger", None), ("renewed", "ca")):
        signed(tmp_path, name, ca)
    files = {name: (tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
             for name in ("server", "client", "stranger", "renewed")}
    access = Access("127.0.0.1", 0, None, *files["server"], tmp_path / "ca.crt")

    def ask(verb, method, client=None):
        """Status of a request over TLS, and who answered."""
        context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
        if client:
            context.load_cert_chain(*files[client])
        connection = http.client.HTTPSConnection("127.0.0.1", one.port, timeout=HANG_S, context=context)
        with contextlib.closing(connection) as c:
            c.request(method, f"/{verb}", json.dumps(POD), {"Content-Type": "application/json"})
            name = c.sock.getpeercert()["subject"][0][0][1]
            return c.getresponse().status, name

    with Running(access=access) as one:
        until(lambda: ask("readyz", "GET")[0] == 200)
        assert ask("filter", "POST", "client") == (200, "server")
        assert ask("filter", "POST")[0] == 401 and ask("metrics", "GET")[0] == 401
        with pytest.raises((ssl.SSLError, OSError)):
            ask("filter", "POST", "stranger")
        with pytest.raises((http.client.HTTPException, OSError)):
            one.ask("filter", POD)  # without TLS
        for new, old in zip(files["renewed"], files["server"], strict=True):
            os.replace(new, old)
        files["server"] = files["client"]
        until(lambda: ask("filter", "POST", "client") == (200, "renewed"))


@pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates, and is not on this machine")
def test_a_file_of_tls_that_cannot_be_used_is_named(tmp_path):
    for name in ("server", "other"):
        signed(tmp_path, name)
    words = [OPENSSL, "pkey", "-in", "server.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "text").write_text("no PEM\n")
    (tmp_path / "torn").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    names = {"certificate": "server.crt", "key": "server.key", "client_ca": None}
    for changed, named in (({"certificate": "text"}, "text"), ({"key": "text"}, "text"),
                           ({"client_ca": "text"}, "text"), ({"client_ca": "torn"}, "torn"),
                           ({"certificate": "torn"}, "torn"),
                           ({"key": "server.crt"}, "server.crt"), ({"client_ca": "server.key"}, "server.key"),
                           ({"certificate": "absent"}, "absent"), ({"key": "absent"}, "absent"),
                           ({"client_ca": "absent"}, "absent"), ({"key": "other.key"}, "other.key"),
                           ({"key": "locked.key"}, "locked.key")):
        files = {name: file and tmp_path / file for name, file in (names | changed).items()}
        with pytest.raises(InputError, match="TLS cannot be used") as caught:
            listen(Access(**files), "reserve GPUs")
        assert str(tmp_path / named) in str(caught.value), changed


# --- readiness, metrics, the end

def test_nothing_is_answered_while_writes_of_an_earlier_process_may_land():
    with Running(rest_s=HANG_S) as one:
        assert one.ask("filter", POD)[0] == one.ask("bind", POD)[0] == one.ask("prioritize", POD)[0] == 503
        until(lambda: one.get("/readyz") == (503, b"waiting for writes of an earlier process\n"))
        assert one.get("/healthz")[0] == 200
    with Running(rest_s=0.1) as one:
        assert one.ready().ask("filter", POD)[0] == 200


class HandyLease:
    """A lease that is ours for as long as a test says."""

    rest_s = 5.0
    was_others = True

    def __init__(self):
        self.left = 0.0
        self.asked = []

    def left_s(self):
        return self.left

    def may_bind(self):
        return self.left > self.rest_s

    def step(self, is_able, is_idle):
        self.asked.append(is_able)
        return
        yield

    def pause_s(self):
        return 0.01


def test_who_leads_lists_pods_anew_and_answers_then_and_no_longer_than_its_lease():
    lease = HandyLease()
    listed = [threading.Event() for _ in range(3)]
    late = [threading.Event() for _ in range(3)]
    turns = []

    def follow(api, kind, tell, pause):
        turns.append(turn := len(turns))
        assert listed[turn].wait(HANG_S)
        tell(f"list {turn}")
        api.watch(kind, "")
        while not (late[turn].wait(0.01) or pause(0)):
            pass  # it hears nothing
        tell(f"late {turn}")
        tell(PodGone(f"u{turn}"))
        while True:
            yield
            pause(0.01)

    def prepare(extender):
        extender.watch(SimpleNamespace(watch=lambda kind, version: None), follow, ("pods",))

    with Running(prepare=prepare, lease=lease) as one:
        until(lambda: lease.asked)
        assert not any(lease.asked)  # who is not warm takes no lease
        listed[0].set()
        until(lambda: any(lease.asked))
        assert one.get("/readyz") == (503, b"waiting for the lease\n") and one.ask("filter", POD)[0] == 503
        assert b"sched_lab_leads 0.0" in one.get("/metrics")[1]
        lease.left = 3.0
        until(lambda: one.get("/readyz") == (503, b"waiting for pods\n"))
        listed[1].set()
        one.ready()
        late[0].set()  # what the old watch tells comes too late, but that a pod has gone
        until(lambda: PodGone("u0") in one.bridge.told)
        assert one.bridge.told == ["list 0", "a new term", "list 1", PodGone("u0")]
        assert one.ask("filter", POD)[0] == one.ask("prioritize", POD)[0] == 200
        assert one.ask("bind", BIND)[0] == 503  # it might land when another leads
        lease.left = 6.0
        assert one.ask("bind", BIND) == (200, b'{"Error":""}')
        lease.was_others = True  # it was lost and taken again in one step, as after a long stop
        until(lambda: one.get("/readyz") == (503, b"waiting for pods\n"))
        listed[2].set()
        one.ready()
        assert one.bridge.told[-2:] == ["a new term", "list 2"]
        one.bridge.trouble = "full"
        until(lambda: not lease.asked[-1])
        lease.left = 0.0
        assert one.ask("filter", POD)[0] == 503
        until(lambda: b"the lease" in one.get("/readyz")[1])
    assert lease.asked[-1] is False and one.bridge.is_closed  # in the end it is given back


def test_it_is_ready_when_lists_are_read_and_kernels_warm():
    may_warm = threading.Event()
    listed = {kind: threading.Event() for kind in ("nodes", "pods")}
    bodies = {"nodes": [node("a"), node("b")], "pods": [pod("c"), pod("d")]}

    class Api:
        def list(self, kind):
            assert listed[kind].wait(HANG_S)
            return bodies[kind], "7"

        def watch(self, kind, version):
            return iter(())

    with Running(warm=may_warm.wait, prepare=lambda one: one.watch(Api(), follow)) as one:
        assert one.get("/readyz") == (503, b"waiting for kernels, nodes, pods\n") and one.get("/healthz")[0] == 200
        assert one.ask("filter", POD)[0] == 503 and b"eopc" not in one.get("/metrics")[1]
        may_warm.set()
        listed["nodes"].set()
        until(lambda: one.get("/readyz") == (503, b"waiting for pods\n"))
        listed["pods"].set()
        assert one.ready().ask("filter", POD)[0] == 200
        assert [event.node.name if isinstance(event, NodeSeen) else event.pod.name for event in one.bridge.told] == [
            "a", "b", "team/c", "team/d"]
        until(lambda: b'sched_lab_watch_restarts_total{kind="pods"}' in one.get("/metrics")[1])


@pytest.mark.parametrize("what", ["broken", "raised", "ended", "warm"])
def test_what_must_not_fail_ends_it(what):
    def follow(api, kind, tell, pause):
        if what == "broken":
            tell("broken")
        if what == "raised":
            raise ValueError("a bug")
        while what != "ended":
            yield
            pause(0.01)

    def warm():
        if what == "warm":
            raise ValueError("a bug")

    one = Running(warm=warm, prepare=lambda extender: extender.watch(None, follow))
    one.thread.start()
    one.thread.join(HANG_S)
    assert not one.thread.is_alive() and one.bridge.is_closed
    assert "has ended" in str(one.extender.health.failure) if what == "ended" else isinstance(
        one.extender.health.failure, ValueError)


def test_why_nothing_is_listed_is_logged(caplog):
    class Api:
        def list(self, kind):
            raise ApiError(403, "nodes is forbidden")

    with Running(prepare=lambda one: one.watch(Api(), follow)) as one:
        until(lambda: "cannot list nodes: 403 nodes is forbidden" in caplog.text)
        assert one.get("/readyz")[0] == 503


def test_metrics_say_what_happened(running):
    running.ask("filter", POD)
    running.ask("filter", {"NodeNames": []})
    running.ask("bind", BIND | {"Node": "bad"})
    text = running.get("/metrics")[1].decode()
    for line in ('sched_lab_decisions_total{mode="decide",outcome="fits"}',
                 'sched_lab_decisions_total{mode="decide",outcome="none"}', 'sched_lab_bind_failures_total',
                 'sched_lab_requests_total{status="200",verb="filter"}', "sched_lab_eopc_watts 1500.0",
                 "sched_lab_gpus_stranded 2.5", "sched_lab_reservations_lapsed_total 3.0",
                 'sched_lab_refusals_total{condition="gpu"} 2.0', "sched_lab_journal_bytes 7.0",
                 'sched_lab_request_seconds_bucket{le="0.003",verb="filter"}', "process_resident_memory_bytes"):
        assert line in text, line


def test_the_end_is_orderly():
    with Running(Limits(**{**vars(PATIENT), "drain_s": 3.0})) as one:
        one.ready().bridge.may_bind.clear()
        found = []
        binding = threading.Thread(target=lambda: found.append(one.ask("bind", BIND)))
        binding.start()
        assert one.bridge.begun.wait(HANG_S)
        one.extender.health.stop(1.0)  # as SIGTERM does
        until(lambda: one.get("/readyz") == (503, b"ending\n"))
        assert one.ask("filter", POD)[0] == 200  # others have not heard of it yet

        def is_deaf():
            try:
                one.ask("filter", POD)
            except (OSError, http.client.HTTPException):
                return True

        until(is_deaf)
        assert not one.bridge.is_closed
        one.bridge.may_bind.set()
        binding.join()
        one.thread.join(HANG_S)
        assert found == [(200, b'{"Error":""}')] and one.bridge.is_closed and not one.thread.is_alive()


