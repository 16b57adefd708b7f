"""What the README promises runs."""
import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_examples_run_one_after_the_other():
    examples = re.findall(r"^```python\n(.*?)^```", README, flags=re.M | re.S)
    names: dict[str, object] = {}
    for example, num_lines in zip(examples, (5, 3), strict=True):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.replace("range(100)", "range(1)"), "README.md", "exec"), names)
        assert len(example.splitlines()) == num_lines and "eopc_w" in printed.getvalue()


def test_files_and_pictures_it_names_exist():
    root = Path(__file__).parents[1]
    named = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r"`([\w./]+/)`", README)
    assert len(named) > 5
    assert [name for name in named if not (root / name).exists()] == []
