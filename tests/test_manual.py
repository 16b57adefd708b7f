"""The sessions of the operator's manual run as they are printed, each page in an empty folder."""
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.command_line import PROGRAM, call
from tests.waiting import HANG_S

MANUAL = Path(__file__).parents[1] / "manual"
GIVEN = {"answer": "files", "questions": "files"}  # pages that begin with what another page has made
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.M)
PATIENCE_S = 300  # for a server to answer as the page says, on a machine that may be busy


def session_of(page):
    """Return every command that a page shows, and what it prints."""
    blocks = re.findall(r"^```console\n(.*?)^```", (MANUAL / f"{page}.md").read_text(encoding="utf-8"), re.M | re.S)
    return [shown for block in blocks for shown in COMMAND.findall(block)]


def pattern_of(printed):
    """Return a pattern of what is printed; three dots in a line, or on one of their own, are any text."""
    between = re.split(r"^\.\.\.$", printed.rstrip("\n"), flags=re.M)
    parts = [re.escape(part).replace(r"\.\.\.", ".*") for part in between]
    return re.compile("(?s:.*)".join(parts) + r"\n*")


def told_by(command):
    """Return what a command of the shell prints, whatever its exit code."""
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout


def printed_by(command, capfd):
    """Return what a command prints; ours run in this process, and say on standard error what is wrong."""
    program, *arguments = shlex.split(command)
    if program != "sched-lab":
        return told_by(command)
    capfd.readouterr()
    code = call(*arguments)
    shown = capfd.readouterr()
    return shown.err if code == 2 else shown.out


def check_session(page, capfd):
    for command, printed in session_of(page):
        name = re.fullmatch(r"cat (\S+\.(?:toml|csv))", command)
        if name and not Path(name[1]).exists():  # a file that the reader writes
            Path(name[1]).write_text(printed)
        if not re.fullmatch(pattern_of(printed), found := printed_by(command, capfd)):
            pytest.fail(f"{page}: {command}\n--- printed\n{found}\n--- on the page\n{printed}")


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """Work in an empty folder, and as a reader's commands do: what is small runs before its code would be compiled."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHED_LAB_COMPILE", "")


@pytest.mark.parametrize("page", ["files", "answer", "questions", "models", "promises"])
def test_a_session_prints_what_the_page_shows(page, empty, capfd):
    for command, _ in session_of(GIVEN[page])[:2] if page in GIVEN else ():
        printed_by(command, capfd)
    check_session(page, capfd)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl: the requests of the page were not sent")
def test_the_service_answers_as_its_page_shows(empty, capfd):
    session = session_of("service")
    start = next(number for number, (command, _) in enumerate(session) if command.endswith("&"))
    for command, _ in session[:start]:
        printed_by(command, capfd)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = shlex.split(session[start][0].removesuffix("&").replace("8080", port))[1:]
    with open("log", "w") as log:
        server = subprocess.Popen([*PROGRAM, *words], stderr=log, stdout=log)
    try:
        for command, printed in [(f"curl -s localhost:{port}/readyz", "ok"), *session[start + 1:]]:
            may_be_asked_again = " -d " not in command
            until = time.monotonic() + PATIENCE_S * may_be_asked_again
            while not re.fullmatch(pattern_of(printed), found := told_by(command.replace("8080", port))):
                assert time.monotonic() < until and server.poll() is None, (command, found, Path("log").read_text())
                time.sleep(0.1)
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(HANG_S) == 0
