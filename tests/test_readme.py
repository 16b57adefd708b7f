"""What the README promises runs."""
import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_examples_run_one_after_the_other():
    examples = re.findall(r"^```python\n(.*?)^```", README, flags=re.M | re.S)
    names: dict[str, object] = {}
    for example, num_lines in zip(examples, (4, 2), strict=True):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.replace("range(100)", "range(1)"), "README.md", "exec"), names)
        assert len(example.splitlines()) == num_lines and "eopc_w" in printed.getvalue()


def test_files_and_pictures_it_names_exist():
    root = Path(__file__).parents[1]
    named = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r"`([\w./]+/)`", README)
    assert len(named) > 5
    assert [name for name in named if not (root / name).exists()] == []


def shell_lines():
    """Every command that the README shows, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, flags=re.M | re.S)
    return [line.partition("#")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def test_every_command_runs_as_pasted_in_an_empty_folder(tmp_path):
    lines = shell_lines()
    commands = [line for line in lines if line.startswith("sched-lab ")]
    names = {"example", "inflate", "sweep", "andreas", "hadar", "far", "far-run", "reproduce", "read", "check",
             "replay", "explain", "place", "move", "recommend", "hardware", "day"}
    assert {line.split()[1] for line in commands} == names
    assert set(lines) - set(commands) == {"make book", "make test", "pip install .", "pip install '.[all]'"}
    program = f'sched-lab() {{ "{sys.executable}" -m sched_lab "$@"; }}'
    done = subprocess.run(["bash", "-e", "-c", "\n".join([program, *commands])], cwd=tmp_path, text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
    is_progress = re.compile(r"[\w-]+: about .* minutes on two cores|sched-lab: compiling .* s")
    said = [line for line in done.stderr.splitlines() if not is_progress.fullmatch(line)]
    assert (done.returncode, said) == (0, [])
    named = {word for line in commands for word in re.findall(r"--out (\S+)", line) if "--dry-run" not in line}
    assert named == {path.name for path in tmp_path.iterdir() if path.is_dir()}


def test_the_install_line_is_that_of_a_package_with_the_extras_named(tmp_path):
    settings = (Path(__file__).parents[1] / "settings.ini").read_text(encoding="utf-8")
    extras = re.findall(r"pip install '\.\[(\w+)\]'", README)
    assert extras and all(f"{name}_requirements" in settings for name in extras if name != "all")
    assert "console_scripts" in (Path(__file__).parents[1] / "setup.py").read_text(encoding="utf-8")
