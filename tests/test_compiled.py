"""What compiled code hands to Python: a named tuple can end the process if a signal arrives while it is made."""
import dis
import importlib
import pkgutil
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, get_type_hints

import pytest

import sched_lab.andreas
import sched_lab.far

NAMES = [f"{family.__name__}.{module.name}" for family in (sched_lab.andreas, sched_lab.far)
         for module in pkgutil.iter_modules(family.__path__)]


def is_compiled(value: object) -> bool:
    return isinstance(getattr(value, "py_func", None), FunctionType)


def returns_named_tuple(compiled: Any) -> bool:
    kind = get_type_hints(compiled.py_func).get("return")
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield from codes(inside)


def named_in(function: FunctionType) -> set[str]:
    return {str(step.argval) for code in codes(function.__code__) for step in dis.get_instructions(code)
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}


def python_functions(module: Any) -> Iterator[FunctionType]:
    """All that Python runs itself: functions of the module, and methods and properties of its classes."""
    for value in vars(module).values():
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            yield value
        if isinstance(value, type) and value.__module__ == module.__name__:
            for member in vars(value).values():
                inside = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if isinstance(inside, FunctionType):
                    yield inside


def handed_to_python(module: Any) -> list[str]:
    """Name the compiled functions that return a named tuple and that Python code of a module calls."""
    return [f"{function.__qualname__} calls {name}" for function in python_functions(module)
            for name in named_in(function)
            if is_compiled(value := function.__globals__.get(name)) and returns_named_tuple(value)]


@pytest.mark.parametrize("name", NAMES)
def test_no_compiled_function_hands_a_named_tuple_to_python(name):
    assert handed_to_python(importlib.import_module(name)) == []
