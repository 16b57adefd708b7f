"""What tests of commands share: two small input files, a call, and the content of a folder."""
import os
import re
import shlex
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.main import get_command

from sched_lab.cli import app, main
from sched_lab.lab.frames import InputError

NODES = """sn,cpu_milli,memory_mib,gpu,model
ant,16000,65536,2,T4
bee,32000,131072,4,G2
cat,64000,262144,1,A100
dog,32000,65536,0,
"""
TASKS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
one,4000,8192,1,500,
two,2000,4096,1,300,T4|G2
three,8000,16384,2,1000,
four,8000,16384,0,0,
"""
PROGRAM = [sys.executable, "-c", "from sched_lab.cli import main; main()"]
RESULT = {"assignments.csv", "curve.csv", "failures.csv", "summary.json"}


def call(*arguments):
    """Exit code of the command line, in this process, which has most code compiled already."""
    said = os.environ.get("SCHED_LAB_COMPILE", "always")
    with patch.dict(os.environ, {"SCHED_LAB_COMPILE": said}), pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return stop.value.code or 0


def inflate(*options, out="out"):
    return call("inflate", "--nodes", "nodes.csv", "--tasks", "tasks.csv", "--out", out, *options)


def content(folder):
    """Every file below a folder, by relative path."""
    files = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def tree(folder):
    """Name everything below a folder, hidden files included."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def assert_refused(code, capsys, *parts):
    """Exit code 2, one line on standard error with these parts, and no output folder."""
    error = capsys.readouterr().err
    assert code == 2
    assert len(error.splitlines()) == 1, error
    assert all(part in error for part in parts), error
    assert "Traceback" not in error
    assert not Path("out").exists()


def assert_refused_at(read, file, where, what):
    """Check that a reader refuses a file in one line, which names the place in it, what is wrong, and a mend."""
    with pytest.raises(InputError, match=re.escape(f"{file}, {where}: ")) as caught:
        read(file)
    assert what in str(caught.value) and caught.value.mend and "\n" not in str(caught.value)


def assert_concluded(text, mark=""):
    """Check that the last lines are a sentence with a number, and a command that parses."""
    sentence, then = text.splitlines()[-2:]
    assert re.search(r"\d", sentence), sentence
    program, *words = shlex.split(then.removeprefix(f"{mark}next: "))
    group = get_command(app)
    context = group.make_context(program, [*words])
    name, command, rest = group.resolve_command(context, words)
    command.make_context(name, rest, parent=context)
    assert program == "sched-lab"


STUDY = """nodes = "nodes.csv"
policies = ["fgd", "pwr"]
seeds = "0-2"
step = 0.5
[traces]
mine = "tasks.csv"
"""
