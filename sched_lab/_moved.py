"""Old names of the package, for one release (hand-written: importing it must cost nothing).

A module that has moved is found under its old path by a finder at the end of `sys.meta_path`; a name that has left a
module that still exists is found by the `__getattr__` that `moved` makes. Both warn whoever uses the old name.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# old module -> new module
MODULES = {
    # instruments and spine
    "sched_lab._compat": "sched_lab.jit",
    # online
    "sched_lab.online.batch": "sched_lab.online.lockstep",
    "sched_lab.online.combine": "sched_lab.online.policies",
    "sched_lab.online.policy": "sched_lab.online.model",
    # andreas
    "sched_lab.andreas.batch": "sched_lab.andreas.lockstep",
    # hadar
    "sched_lab.hadar.engine": "sched_lab.hadar.simulation",
    # far
    "sched_lab.far.batch": "sched_lab.far.lockstep",
}

# module -> old name -> where it is now, as "module:name"
NAMES: dict[str, dict[str, str]] = {
    # instruments and spine
    "sched_lab._compat": {"embedded": "sched_lab.frames:embedded"},
    "sched_lab.frames": {name: f"sched_lab.reports:{name}"
                         for name in ("Answer", "check_folder", "refuse_folder", "input_difference")},
    # online
    "sched_lab.online.lockstep": {"Batch": "sched_lab.online.lockstep:Runs",
                                  "inflate_batch": "sched_lab.online.lockstep:simulate_together"},
    "sched_lab.online.policies": {"STAGED": "sched_lab.online.policies:STAGES_OF_JOINT"},
    # andreas
    "sched_lab.andreas.rules": {"RULES": "sched_lab.andreas.policies:POLICIES"},
    "sched_lab.andreas.greedy": {"Randomness": "sched_lab.andreas.greedy:SearchOptions",
                                 "check_randomness": "sched_lab.andreas.greedy:check_options"},
    "sched_lab.andreas.rollout": {"POLICIES": "sched_lab.andreas.rollout:BASE_POLICIES"},
    "sched_lab.andreas.simulation": {"METHODS": "sched_lab.andreas.policies:POLICIES"},
    "sched_lab.andreas.report": {"DECISIONS": "sched_lab.andreas.policies:POLICIES",
                                 "report": "sched_lab.andreas.report:report_of"},
    # hadar
    "sched_lab.hadar.simulation": {"simulate": "sched_lab.hadar.simulation:run_rounds"},
    "sched_lab.hadar.copies": {"simulate_copies": "sched_lab.hadar.copies:run_copies"},
    "sched_lab.hadar.bounds": {"ExactInstance": "sched_lab.hadar.bounds:SlottedWorkload",
                               "Run": "sched_lab.hadar.bounds:PrimalDualRun",
                               "random_instance": "sched_lab.hadar.bounds:random_slotted"},
    "sched_lab.hadar.planned": {"Plan": "sched_lab.hadar.planned:TypePlan"},
    "sched_lab.hadar.report": {"SCHEDULERS": "sched_lab.hadar.policies:POLICIES",
                               "scheduler_of": "sched_lab.hadar.policies:policy_of",
                               "settings_of": "sched_lab.hadar.policies:options_of",
                               "lower_bound_s": "sched_lab.hadar.bounds:bound",
                               "report": "sched_lab.hadar.report:report_of"},
    # far
    "sched_lab.far.repartition": {"replay": "sched_lab.far.repartition:run_plan"},
    "sched_lab.far.report": {
        **{name: f"sched_lab.far.policies:{name}" for name in ("PLANNERS", "QUEUES", "solver_of")},
        "schedule_batches": "sched_lab.far.policies:simulate", "report": "sched_lab.far.report:report_of"},
}


def moved(module: str) -> Callable[[str], Any]:
    """`__getattr__` of a module that has lost names: finds them where they are now, and says so."""
    here = NAMES.get(module, {})

    def __getattr__(name: str) -> Any:
        if name not in here:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, new = here[name].partition(":")
        warnings.warn(f"{module}.{name} is now {place}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(place), new)

    return __getattr__


class OldPaths:
    """Finds modules under the paths that they had before."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        """Say who loads an old path; nothing for any other."""
        return ModuleSpec(name, cls()) if name in MODULES else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make the empty module, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module that has the content now in the place of the old one."""
        new = MODULES[module.__name__]
        warnings.warn(f"{module.__name__} is now {new}", DeprecationWarning, stacklevel=2)
        content = importlib.import_module(new)
        if module.__name__ not in NAMES:
            sys.modules[module.__name__] = content
            return
        vars(module).update({name: value for name, value in vars(content).items() if name[:2] != "__"})
        vars(module)["__getattr__"] = moved(module.__name__)  # some of its names went elsewhere


def serve_old_paths() -> None:
    """Find moved modules from now on; asking twice changes nothing."""
    if not any(finder is OldPaths for finder in sys.meta_path):
        sys.meta_path.append(OldPaths)
