"""The service as the soak starts it: forked from a process that has imported all it needs, so that it starts fast."""
import os
from pathlib import Path

os.environ["SCHED_LAB_COMPILE"] = "never"   # the queue of a soak is short

import sched_lab.andreas.http  # noqa: E402
import sched_lab.andreas.service_command  # noqa: E402, F401
from sched_lab.cli import main  # noqa: E402


def run(words: list[str], log: Path) -> None:
    """Be `sched-lab` with these words, in this process."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(out, stream)
    main(words)
