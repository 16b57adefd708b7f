"""Records that compiled code takes as one pointer each; numba's part of `jit.by_reference`, loaded when something compiles."""

# A module, written by hand.
# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import hashlib
from typing import Any

from numba import types, typeof
from numba.experimental import structref
from numba.extending import NativeValue, typeof_impl, unbox


class Reference(types.StructRef):
    """What a record is to numba: a struct with its fields, which goes by a pointer."""

    def __init__(self, record: type, fields: Any) -> None:
        super().__init__(fields)
        self.record = record
        digest = hashlib.sha256(repr(fields).encode()).hexdigest()[:16]
        self.name = f"{record.__module__}.{record.__qualname__}.{digest}"    # short: it is part of every symbol


structref.register(Reference)
new: Any = structref.new


@unbox(Reference)
def copy_fields(kind: Any, record: Any, c: Any) -> Any:
    """Make a struct of a record that Python hands over: its arrays are the same, its numbers are copies."""
    def empty() -> Any:
        return new(kind)

    takes = kind()
    made = c.context.compile_subroutine(c.builder, empty, takes)
    status, struct = c.context.call_internal_no_propagate(c.builder, made.fndesc, takes, ())
    for name, each in kind.field_dict.items():
        field = c.pyapi.object_getattr_string(record, name)
        value = c.unbox(each, field).value
        c.pyapi.decref(field)
        c.context.get_setattr(name, types.void(kind, each))(c.builder, (struct, value))
        c.context.nrt.decref(c.builder, each, value)    # the struct holds its own
    return NativeValue(struct, is_error=status.is_error)


def refer(record: Any) -> None:
    """Let compiled code take instances of a record by reference from now on."""
    def type_of(value: Any, context: Any) -> Reference:
        return Reference(record, [(name, types.unliteral(typeof(field)))
                                  for name, field in zip(record._fields, value, strict=True)])

    typeof_impl.register(record)(type_of)
