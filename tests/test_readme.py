"""What the README promises runs."""
import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from tests.command_line import call

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "read"), [("README.md", "read()"), ("manual/models.md", "toy()")])
def test_the_python_example_runs(page, read):
    example, = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example.replace("read()", read), page, "exec"), {})
    assert "eopc_w" in printed.getvalue()


def test_files_and_pictures_it_names_exist():
    named = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r"`([\w./]+/)`", README)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def shell_lines():
    """Every command that the README shows, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, flags=re.M | re.S)
    return [line.partition("#")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


DEMO = "sched-lab demo --out demo"      # the manual shows it with all it prints, and its test runs it
COMMANDS = [line for line in shell_lines() if line.startswith("sched-lab ") and line != DEMO]
# What a command prints, by how it begins: the longest beginning counts. An answer of nothing ("0 of 0") is none.
SHOWN = {
    "example": r"^\w[\w-]*\.(csv|json)$",
    "read": r"^mycluster: 3 nodes with 8 GPUs, 6 tasks;.*\nnext: sched-lab check mycluster$",
    "check": r"^usable: 3 nodes with 8 GPUs.*\nnext: sched-lab replay ",
    "replay": r"^fgd: [1-9] served,(?: .*,)? mean wait \d+ s, [\d.]+ kWh$",
    "explain": r"^fgd puts it on bee, GPU 0-1, with [1-9]\d* points;",
    "place": r"^placed: fgd at \d+ s: [1-9] of 2 waiting tasks placed$",
    "move": r"^moves: [1-9] moves?: [1-9] whole GPUs? freed",
    "reproduce hadar": r"^speed_ratios +[\d.]+ min ",
    "reproduce hadar speed_ratios --check": r"^hadar/speed_ratios\.csv: same \(",
}


def stories():
    """Commands that go together: each example, and what is done with its files."""
    first = ("sched-lab example", "sched-lab reproduce hadar")
    begins = [line.startswith(first) for line in COMMANDS]
    begins[-1] = False
    starts = [number for number, is_first in enumerate(begins) if is_first]
    return [COMMANDS[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def test_no_command_is_left_out():
    others = set(shell_lines()) - set(COMMANDS)
    assert others == {DEMO, "make book", "make test", "pip install '.[all]'",
                      "kubectl get nodes,pods -A -o json > dump.json"}
    assert f"$ {DEMO} --no-open" in (ROOT / "manual/answer.md").read_text(encoding="utf-8")
    assert sum(map(len, stories())) == len(COMMANDS) and len(stories()) == 2


@pytest.mark.parametrize("story", stories(), ids=lambda story: story[0].removeprefix("sched-lab "))
def test_every_command_as_pasted_in_an_empty_folder_shows_something(story, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHED_LAB_COMPILE", "")     # as where nothing is set: what is small is not compiled
    is_progress = re.compile(r"[\w-]+: about .* minutes on two cores|sched-lab: compiling once, .* minute")
    for line in story:
        code = call(*shlex.split(line)[1:])
        shown = capfd.readouterr()
        said = [words for words in shown.err.splitlines() if not is_progress.fullmatch(words)]
        assert (code, said) == (0, []), line
        begin = max((one for one in SHOWN if line.startswith(f"sched-lab {one}")), key=len)
        assert re.search(SHOWN[begin], shown.out, re.M), f"{line}\n{shown.out}"
    named = {word for line in story for word in re.findall(r"--out (\S+)", line) if "--dry-run" not in line}
    assert named == {path.name for path in tmp_path.iterdir() if path.is_dir()}


def test_the_install_line_is_that_of_a_package_with_the_extras_named(tmp_path):
    settings = (ROOT / "settings.ini").read_text(encoding="utf-8")
    extras = re.findall(r"pip install '\.\[(\w+)\]'", README)
    assert extras and all(f"{name}_requirements" in settings for name in extras if name != "all")
    assert "console_scripts" in (ROOT / "setup.py").read_text(encoding="utf-8")
