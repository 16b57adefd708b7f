"""A signal may come in the instant in which compiled code hands a result to Python; a named tuple is then lost.

Numba calls the class of a named tuple while an exception may be set, and the process may end by a segmentation fault.
So compiled functions that return one are for compiled callers only.
"""
import ast
from pathlib import Path

import sched_lab.hadar

FILES = sorted(Path(sched_lab.hadar.__file__).parent.glob("*.py"))
TREES = [ast.parse(file.read_text(encoding="utf-8")) for file in FILES]
FUNCTIONS = [node for tree in TREES for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
NAMED = {node.name for tree in TREES for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
         and any(ast.unparse(base) == "NamedTuple" for base in node.bases)}


def is_compiled(function):
    """Whether a function has the decorator `njit`."""
    return any("njit" in ast.unparse(decorator) for decorator in function.decorator_list)


def names_in(node):
    """All names in a piece of code."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def calls_of(function):
    """Names of the module that a function calls."""
    own = {part.id for part in ast.walk(function) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return {call.func.id for call in ast.walk(function)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)} - own


def test_compiled_code_hands_no_named_tuple_to_python():
    assert {"Place", "Terms", "Allocation"} <= NAMED
    returning = {function.name for function in FUNCTIONS
                 if is_compiled(function) and function.returns and names_in(function.returns) & NAMED}
    assert "best_place" in returning  # there is something to look for
    called = {(function.name, name) for function in FUNCTIONS if not is_compiled(function)
              for name in calls_of(function) & returning}
    assert not called
