"""Run many sweeps in a row on a busy machine, and see whether one hangs, loses a cell or leaves a process behind.

python -W error tools/soak_sweeps.py [SWEEPS] [BUSY]   300 sweeps beside 4 busy loops, unless told otherwise

Every second sweep has a cell that fails, and in every tenth a worker is killed at a random moment. A sweep that was
stopped is resumed by one process, and must then have all its cells. One that takes two minutes is a hang: the stacks
are shown and the program ends with exit code 1.
"""
from __future__ import annotations

import faulthandler
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

import psutil

from sched_lab.lab.sweeps import SweepError, grid, sweep

CELLS = 6
HANG_S = 120
BUSY = """
import os, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
while True:
    pass
"""


def cell(folder: str, n: int) -> dict[str, float]:
    """Compute a little; fail, or take long, while a file says so."""
    if n == 3 and Path(folder, "fails").exists():
        raise ValueError("as asked")
    time.sleep(1.0 if Path(folder, "slow").exists() else 0.02)
    return {"x": n / 7}


def workers() -> list[psutil.Process]:
    """Worker processes of this one."""
    found = []
    for process in psutil.Process().children():
        try:
            if "spawn_main" in "".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill_one(delay_s: float, killed: list[int]) -> None:
    """Wait for workers, then a little, and kill one."""
    while not workers():
        time.sleep(0.005)
    time.sleep(delay_s)
    if crew := workers():
        victim = random.choice(crew)
        victim.kill()
        killed.append(victim.pid)


def one_sweep(folder: Path, fails: bool, kill_after_s: float | None) -> str:
    """Make a sweep, resume it, check everything about both, and tell what became of the first."""
    (folder / "out").mkdir(parents=True)
    if fails:
        (folder / "fails").touch()
    killed: list[int] = []
    killer = threading.Thread(target=kill_one, args=(kill_after_s, killed), daemon=True)
    if kill_after_s is not None:
        (folder / "slow").touch()
        killer.start()
    cells = grid(folder=str(folder), n=range(CELLS))
    end = "completed"
    try:
        sweep(cell, cells, folder / "out", workers=2)
        assert not fails and not killed, "it completed in spite of everything"
    except SweepError as error:
        end = "failed" if "as asked" in str(error) else "killed"
        assert (end == "failed" and fails) or ("a worker process died" in str(error) and killed), error
    if kill_after_s is not None:
        killer.join()
        (folder / "slow").unlink()
    (folder / "fails").unlink(missing_ok=True)
    assert not workers(), "a worker is left"
    finished = len(list((folder / "out" / "cells").rglob("*.csv")))
    whole = sweep(cell, cells, folder / "out")
    assert (whole.kept, whole.computed, whole.damaged) == (finished, CELLS - finished, ()), whole
    assert whole.frame["x"].tolist() == [n / 7 for n in range(CELLS)], "a cell is lost"
    return end


def left_behind(mark: str) -> list[psutil.Process]:
    """Find processes with our mark, whoever their parent is by now, except this one and its resource tracker."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("SOAK") == mark and (
                    "resource_tracker" not in "".join(process.cmdline())):
                found.append(process)
        except psutil.Error:
            continue
    return found


def main(sweeps: int = 300, busy: int = 4) -> None:
    random.seed(83)
    begin = time.monotonic()
    ends = Counter[str]()
    slowest_s = 0.0
    kills = 0
    loops = [subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) for _ in range(busy)]
    os.environ["SOAK"] = mark = uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        for number in range(sweeps):
            kill_after_s = random.uniform(0, 2) if number % 10 == number // 10 % 10 else None
            kills += kill_after_s is not None
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            start = time.monotonic()
            ends[one_sweep(Path(folder, str(number)), bool(number % 2), kill_after_s)] += 1
            slowest_s = max(slowest_s, time.monotonic() - start)
            if number % 10 == 9:
                print(f"{number + 1} sweeps, {time.monotonic() - begin:.0f} s: {dict(ends)}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    orphans = left_behind(mark)
    for loop in loops:
        loop.kill()
        loop.communicate()
    print(f"{sweeps} sweeps beside {busy} busy loops in {time.monotonic() - begin:.0f} s, the slowest "
          f"{slowest_s:.1f} s: {dict(ends)}; a kill was tried in {kills}; no hang, no lost cell, "
          f"{len(orphans)} orphans")
    sys.exit(bool(orphans))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
