"""Kernels for the test of the chapters that come to life with the libraries loaded.

Loading NumPy, pandas, numba and Altair takes two seconds, and SciPy two more where it is needed; each chapter has a
kernel of its own. So one process loads them once, nothing of the package with them, and every kernel is a fork of it.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

LIBRARIES = ("ipykernel.ipkernel", "ipykernel.zmqshell", "numpy", "pandas", "numba", "altair", "scipy.optimize",
             "pydantic")


class WarmKernel:
    """A kernel as `jupyter_client` sees one: what it asks of a process."""

    stdin = stdout = stderr = None
    source: subprocess.Popen[str] | None = None

    def __init__(self, cmd: list[str], env: dict[str, str] | None = None, cwd: str | None = None, **_: Any):
        if WarmKernel.source is None or WarmKernel.source.poll() is not None:  # none yet, or it was killed
            WarmKernel.source = subprocess.Popen([sys.executable, __file__], text=True, stdin=subprocess.PIPE,
                                                 stdout=subprocess.PIPE)
        wish = {"argv": cmd[3:], "env": dict(os.environ if env is None else env), "cwd": cwd or os.getcwd()}
        assert cmd[1:3] == ["-m", "ipykernel_launcher"]
        assert WarmKernel.source.stdin is not None and WarmKernel.source.stdout is not None
        print(json.dumps(wish), file=WarmKernel.source.stdin, flush=True)
        self.pid = int(WarmKernel.source.stdout.readline())

    def poll(self) -> int | None:
        """Nothing as long as it lives."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def wait(self) -> int:
        """Wait for its end."""
        while self.poll() is None:
            time.sleep(0.01)
        return 0

    def send_signal(self, signum: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def become_kernel(argv: list[str], env: dict[str, str], cwd: str) -> None:
    """Be the kernel that was asked for, until it ends."""
    os.setsid()
    print(os.getpid(), flush=True)  # not before: who ends a kernel ends its process group
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    sys.path[0] = ""
    import pandas as pd
    from ipykernel.kernelapp import IPKernelApp

    pd.set_option("display.max_columns", 20)  # what pandas decides for itself where it is loaded in a kernel
    IPKernelApp.launch_instance(argv=argv)


def serve() -> None:
    """Fork a kernel for each line that arrives; a kernel that ends leaves nothing to be waited for."""
    for library in LIBRARIES:
        __import__(library)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while line := sys.stdin.readline():
        wish = json.loads(line)
        if os.fork() == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            become_kernel(**wish)
            os._exit(0)


if __name__ == "__main__":
    serve()
