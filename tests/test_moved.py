"""Old names work for one release, and say what they are now."""

from __future__ import annotations

import importlib
import sys
import warnings

import pytest

import sched_lab
from sched_lab import _moved, frames, jit


@pytest.mark.parametrize("old", _moved.MODULES)
def test_an_old_path_is_served_and_the_warning_points_to_the_caller(old):
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {_moved.MODULES[old]}") as said:
        module = importlib.import_module(old)
    new = importlib.import_module(_moved.MODULES[old])
    assert [one.category for one in said] == [DeprecationWarning]
    assert old in _moved.NAMES or module is new


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in _moved.NAMES.items()
                                              for name in names])
def test_an_old_name_is_served_and_the_warning_points_to_the_caller(module, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        home = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{module}.{name} is now") as said:
        value = getattr(home, name)
    assert said[0].filename == __file__
    place, _, new = _moved.NAMES[module][name].partition(":")
    assert value is getattr(importlib.import_module(place), new)


def test_the_compiler_module_has_its_old_path_and_the_names_that_left_it():
    sys.modules.pop("sched_lab._compat", None)
    with pytest.warns(DeprecationWarning) as said:
        from sched_lab._compat import njit  # type: ignore[import-not-found]
    assert njit is jit.njit and said[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="sched_lab.frames.embedded"):
        from sched_lab._compat import embedded
    assert embedded is frames.embedded


def test_what_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sched_lab.nothing")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        frames.nothing  # noqa: B018


def test_the_finder_stands_last_and_once():
    _moved.serve_old_paths()
    assert [finder for finder in sys.meta_path if finder is _moved.OldPaths] == [_moved.OldPaths]
    assert sched_lab.__doc__ is not None and "sched_lab.online" in sched_lab.__doc__
