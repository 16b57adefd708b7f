"""What a user waits for and installs, in two checkouts: first and later starts, packages, the evaluation.

`benchmarks/table.py` runs this; each function yields rows for one of its frames. What a checkout cannot do is left
empty, and the last line of what it said instead goes to standard error.
"""
from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ANDREAS = "andreas --instance jobs.json --simulate --policy"
HADAR = "hadar --jobs jobs.csv --cluster cluster.csv --throughputs throughputs.csv --policy"
COMMANDS = {  # the most used one first; files are those of `sched-lab example`
    "inflate": "inflate --nodes nodes.csv --tasks tasks.csv --policy fgd", "inflate default": "inflate --policy fgd",
    "inflate default, joint": "inflate --policy joint", "sweep": "sweep study.toml --workers 1",
    "andreas rg": f"{ANDREAS} rg", "andreas local": f"{ANDREAS} local",
    "hadar": f"{HADAR} hadar", "hadar planned": f"{HADAR} planned",
    "far": "far --times times.csv --policy far", "far-plus": "far --times times.csv --policy far-plus",
    "far optimal": "far --times times.csv --policy optimal",
    "far-run": "far-run --times times.csv --policy far --dry-run",
    "read": "read k8s nodes.json pods.json", "replay": "replay cluster", "move": "move cluster",
}
FAMILIES = ("online", "andreas", "hadar", "far", "fleet")
NOT_FOR_USERS = {"dev", "book", "lab"}


def complain(what: str, said: str) -> None:
    """Say on standard error why a row is empty."""
    print(f"{what}: {(said.strip().splitlines() or ['no word'])[-1]}", file=sys.stderr, flush=True)


def timed(words: list[str], folder: Path, environment: dict[str, str]) -> Row:
    """Wall-clock and processor time in s and peak memory in MiB of a command and its children; empty if it fails."""
    with (folder / "said").open("w+") as said:
        start_s = time.perf_counter()
        pid = subprocess.Popen([sys.executable, "-m", "sched_lab", *words], env=environment, cwd=folder,
                               stdout=subprocess.DEVNULL, stderr=said).pid
        _, status, used = os.wait4(pid, 0)
        wall_s = time.perf_counter() - start_s
        if status:
            said.seek(0)
            complain(" ".join(words), said.read())
            return {}
    return {"wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime, "mib": used.ru_maxrss / 1024}


def environment_of(checkout: Path, folder: Path, bytecode: Path) -> dict[str, str]:
    """Where a checkout keeps compiled code; Python's own bytecode is kept, as an installer makes it once."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve()), "NUMBA_CACHE_DIR": str(folder / "cache"),
                   "PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def make_examples(folder: Path, environment: dict[str, str]) -> None:
    """Put the examples of all families, and a cluster that has been read, into a folder."""
    for family in FAMILIES:
        timed(["example", family, "."], folder, environment)
    if (folder / "pods.json").exists():
        timed(["read", "k8s", "nodes.json", "pods.json", "--out", "cluster"], folder, environment)


def make_bytecode(checkout: Path, bytecode: Path) -> None:
    """Compile the package and all that is installed beside it to Python's bytecode; what cannot be is left."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-j", "0", str(checkout / "sched_lab"),
                    sysconfig.get_path("purelib")], check=False, capture_output=True,
                   env={**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)})


def command_rows(checkouts: dict[str, Path], rounds: int, only: str = "") -> Iterator[Row]:
    """Best of some rounds for each command: on its small examples, and compiled, as larger files have it.

    Python's bytecode is made before, as an installer does.
    """
    with tempfile.TemporaryDirectory() as bytecode, tempfile.TemporaryDirectory() as examples:
        for word, checkout in checkouts.items():
            make_bytecode(checkout, Path(bytecode))
            Path(examples, word).mkdir()
            make_examples(Path(examples, word), environment_of(checkout, Path(examples), Path(bytecode)))
        for name, words in COMMANDS.items():
            if not name.startswith(only):
                continue
            found: dict[tuple[str, str, str], list[Row]] = {}
            for _ in range(rounds):
                for word, checkout in checkouts.items():
                    for size, compiled in (("example", ""), ("larger", "always")):
                        with tempfile.TemporaryDirectory() as folder:
                            shutil.copytree(Path(examples, word), folder, dirs_exist_ok=True)
                            environment = environment_of(checkout, Path(folder), Path(bytecode))
                            environment |= {"SCHED_LAB_COMPILE": compiled}
                            for state in ("cold", "warm"):
                                got = timed([*shlex.split(words), "--out", state], Path(folder), environment)
                                if got:
                                    found.setdefault((word, size, state), []).append(got)
            for size in ("example", "larger"):
                for state in ("cold", "warm"):
                    row: Row = {"command": name, "input": size, "state": state}
                    for word in checkouts:
                        rows = found.get((word, size, state), [])
                        row |= {f"{word}_{what}": min((each[what] for each in rows), default="")
                                for what in ("wall_s", "cpu_s", "mib")}
                    yield row


def installed(checkout: Path, extra: str) -> Row:
    """Size in MB and number of packages of a fresh environment with the package and an extra; empty if it cannot be."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")     # an installer leaves its files beside what it builds
        left_out = shutil.ignore_patterns(".git", "__pycache__", ".venv", "build", "shared")
        shutil.copytree(checkout, source, ignore=left_out)
        home = Path(folder, "home")
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
        python = home / "bin" / "python"
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
        wanted = f"{source}[{extra}]" if extra else str(source)
        done = subprocess.run([str(python), "-m", "pip", "install", "--quiet", wanted], env=environment, text=True,
                              capture_output=True, cwd=folder)
        if done.returncode:
            complain(f"{checkout} [{extra}]", done.stderr)
            return {}
        site = next(home.glob("lib/python*/site-packages"))
        ours = [path for path in site.iterdir()
                if path.name.partition("-")[0].lower() not in ("pip", "setuptools", "pkg_resources", "_distutils_hack")]
        files = [file for path in ours for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
        return {"mb": sum(file.stat().st_blocks * 512 for file in files) / 1e6,
                "packages": sum(path.name.endswith(".dist-info") for path in ours)}


def install_rows(checkouts: dict[str, Path], only: str = "") -> Iterator[Row]:
    """Yield a row for the base and one for each extra that a user may want."""
    extras: dict[str, set[str]] = {}
    for word, checkout in checkouts.items():
        settings = ConfigParser(delimiters=["="])
        settings.read(checkout / "settings.ini", encoding="utf-8")
        extras[word] = {name.removesuffix("_requirements") for name in settings["DEFAULT"]
                        if name.endswith("_requirements")} - NOT_FOR_USERS
    for extra in ("", *sorted(set.union(*extras.values())), "all"):
        if not (extra or "base").startswith(only):
            continue
        row: Row = {"extra": extra or "base"}
        for word, checkout in checkouts.items():
            got = installed(checkout, extra) if extra in extras[word] | {"", "all"} else {}
            row |= {f"{word}_{what}": got.get(what, "") for what in ("mb", "packages")}
        yield row


def evaluation_rows(checkouts: dict[str, Path], only: str = "") -> Iterator[Row]:
    """Wall-clock time and memory of the 1,430 runs on all processors, by the benchmark that each checkout has of it."""
    for arithmetic in ("exact", "reference"):
        if not arithmetic.startswith(only):
            continue
        row: Row = {"arithmetic": arithmetic}
        for word, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder, "out.json")
                done = subprocess.run(
                    [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0",
                     "--timeout", "0", "benchmarks/test_sweep.py", "-k", f"1430 and {arithmetic}",
                     f"--benchmark-json={out}"], cwd=checkout, capture_output=True, text=True,
                    env={**os.environ, "PYTHONPATH": str(checkout.resolve())})
                about = json.loads(out.read_text())["benchmarks"] if out.exists() and out.stat().st_size else []
                if not about:
                    complain(f"evaluation {word}", done.stdout)
                row |= {f"{word}_wall_s": about[0]["stats"]["min"] if about else "",
                        f"{word}_mib": about[0]["extra_info"].get("memory_mib", "") if about else ""}
        yield row
