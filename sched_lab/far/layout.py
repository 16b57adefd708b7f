"""The layout of a schedule stage by stage, as configurations for mig-parted and as commands of nvidia-smi."""

# A module, written by hand.

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..lab.frames import InputError, printable
from .mig import Mig, Schedule
from .profiles import ProfileMig, fault_of

PAUSE_S = 1e-6  # operations with less between them belong together


PROFILE = re.compile(r"[0-9]+g\.[0-9]+gb([+-][a-z.]+)?")


def has_layout(mig: Mig) -> bool:
    """Whether there are commands that cut these GPUs: their profiles have NVIDIA's names."""
    return isinstance(mig, ProfileMig) and all(PROFILE.fullmatch(profile.name)
                                               for _, profile in mig.columns)


class Stage(NamedTuple):
    """Operations that follow each other, and what exists after them.

    Parameters
    ----------
    number : from 0
    begin_s, end_s : of the operations
    operations : instance, and whether it is created, in order
    exist : instances that exist afterwards
    """

    number: int
    begin_s: float
    end_s: float
    operations: tuple[tuple[int, bool], ...]
    exist: tuple[int, ...]


def stages_of(schedule: Schedule) -> list[Stage]:
    """Stages of a schedule.

    Raises
    ------
    InputError : if the GPUs have sizes only, or instances exist together that a GPU cannot have
    """
    mig = schedule.mig
    if not (isinstance(mig, ProfileMig) and has_layout(mig)):
        raise InputError(f"{mig.model} has no profiles, only sizes",
                         mend="name the GPU as `sched-lab hardware` does, 'H100 PCIe'")
    order = np.lexsort((schedule.operation_end_s, schedule.operation_start_s))
    exist = set(schedule.existing.tolist())
    stages: list[Stage] = []
    for k in order.tolist():
        i, creates = int(schedule.operated[k]), bool(schedule.is_creation[k])
        begin_s = float(schedule.operation_start_s[k])
        end_s = float(schedule.operation_end_s[k])
        exist = exist | {i} if creates else exist - {i}
        if not stages or begin_s > stages[-1].end_s + PAUSE_S:
            stages.append(Stage(len(stages), begin_s, end_s, (), ()))
        last = stages[-1]
        stages[-1] = Stage(last.number, last.begin_s, max(last.end_s, end_s),
                           (*last.operations, (i, creates)), tuple(sorted(exist)))
    for stage in stages:
        for gpu, model in enumerate(mig.gpus):
            together = [(mig.profile(i), int(mig.start[i])) for i in stage.exist
                        if mig.tree.gpu[i] == gpu]
            if fault := fault_of(model, together):
                raise InputError(f"stage {stage.number}, GPU {gpu}: {fault}",
                                 mend="check the schedule")
    return stages


def device_lines(gpu: int | str, is_cut: bool, counts: Mapping[str, int]) -> list[str]:
    """What a configuration of mig-parted says of a GPU: is it cut, into how many of each profile."""
    lines = [f"    - devices: [{gpu}]", f"      mig-enabled: {json.dumps(is_cut)}"]
    if is_cut:
        lines.append("      mig-devices:" + ("" if counts else " {}"))
        lines += [f"        {json.dumps(name)}: {n}" for name, n in sorted(counts.items())]
    return lines


def mig_parted(schedule: Schedule, names: Sequence[str]) -> str:
    """Configurations for mig-parted: `sched-lab-stage-0` and so on.

    Parameters
    ----------
    schedule : on GPUs with profiles
    names : of the tasks

    Raises
    ------
    InputError : as `stages_of`
    """
    mig = schedule.mig
    lines = ["version: v1", "mig-configs:"]
    for stage in stages_of(schedule):
        assert isinstance(mig, ProfileMig)
        lines.append(f"  # {stage.begin_s:.2f} s to {stage.end_s:.2f} s")
        lines.append(f"  {json.dumps(f'sched-lab-stage-{stage.number}')}:")
        for gpu in range(mig.num_gpus):
            counts = Counter(mig.profile(i).name for i in stage.exist if mig.tree.gpu[i] == gpu)
            runs = ((mig.tree.gpu[schedule.instance] == gpu) & (schedule.start_s < stage.end_s)
                    & (schedule.end_s > stage.begin_s))
            if busy := [str(names[task]) for task in np.flatnonzero(runs).tolist()]:
                lines.append(f"    # runs on this GPU meanwhile: {printable(json.dumps(busy))}")
            held = [mig.name(i) for i in schedule.existing if mig.tree.gpu[i] == gpu]
            if set(held) & {mig.name(i) for i in stage.exist}:
                lines.append(f"    # from before, perhaps in use: {printable(json.dumps(held))}")
            lines += device_lines(gpu, True, counts)
    return "\n".join(lines if len(lines) > 2 else [lines[0], "mig-configs: {}"]) + "\n"


SCRIPT = """#!/bin/sh
# sh layout.sh STAGE carries out one stage: destroys and creates instances, one after the other.
set -eu
command -v nvidia-smi >/dev/null || {
    echo "nvidia-smi is not here; run this where the GPUs are" >&2
    exit 127
}
make() {  # GPU, profile, start
    nvidia-smi mig -i "$1" -cgi "$2:$3" -C
}
remove() {  # GPU, start
    list=$(nvidia-smi mig -i "$1" -lgi) || { printf '%s\\n' "$list" >&2; return 1; }
    id=$(printf '%s\\n' "$list" | awk -v at="$2:" '
        $1 == "|" && $3 == "MIG" && index($(NF - 1), at) == 1 {print $(NF - 2)}')
    [ -n "$id" ] || { echo "GPU $1 has no instance at $2" >&2; return 1; }
    nvidia-smi mig -i "$1" -gi "$id" -dci
    nvidia-smi mig -i "$1" -gi "$id" -dgi
}
"""


def layout_script(schedule: Schedule, names: Sequence[str]) -> str:
    """A shell script that carries a layout out with nvidia-smi, one stage a call.

    Parameters
    ----------
    schedule : on GPUs with profiles
    names : of the tasks

    Raises
    ------
    InputError : as `stages_of`
    """
    mig = schedule.mig
    lines = ['case "${1:-}" in']
    stages = stages_of(schedule)
    for stage in stages:
        assert isinstance(mig, ProfileMig)
        lines.append(f"{stage.number})  # {stage.begin_s:.2f} s to {stage.end_s:.2f} s")
        made = {i for i, creates in stage.operations if creates}
        rows = np.flatnonzero(np.isin(schedule.instance, [*made])).tolist()
        starts = [str(names[task]) for task in rows]
        lines.append(f"    # made for: {printable(json.dumps(starts))}")
        for i, creates in stage.operations:  # numbers, and names of profiles
            verb, profile = ("make", f" {mig.profile(i).name}") if creates else ("remove", "")
            lines.append(f"    {verb} {mig.tree.gpu[i]}{profile} {mig.start[i]}")
        lines.append("    ;;")
    help = f"give a stage, below {len(stages)}" if stages else "there is nothing to carry out"
    lines += ["*)", f'    echo "{help}" >&2', "    exit 2", "    ;;", "esac"]
    return SCRIPT + "\n".join(lines) + "\n"
