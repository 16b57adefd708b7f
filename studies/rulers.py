"""Rulers for array programs: the time of a call, and the bytes and numbers that it moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ['best_time_s', 'traffic_of']


def synchronise(xp: Any) -> None:
    """Wait until the device has done all it was asked to do; NumPy has done it already."""
    if hasattr(xp, "cuda"):
        xp.cuda.get_current_stream().synchronize()


def best_time_s(function: Callable[[], Any], xp: Any, repeats: int = 5) -> float:
    """Shortest time of several calls, each until the device has finished, after one to warm up.

    Parameters
    ----------
    function : called without arguments
    xp : array functions of the device it computes on
    repeats : number of calls that count
    """
    times = []
    for _ in range(repeats + 1):
        synchronise(xp)
        start = time.perf_counter()
        function()
        synchronise(xp)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def copy_bandwidth_bytes_per_s(xp: Any, num_bytes: int = 2**28, repeats: int = 5) -> float:
    """Bytes per second, read and written, of copying one large array into another."""
    source = xp.zeros(num_bytes // 8, dtype=xp.int64)
    return 2 * num_bytes / best_time_s(lambda: xp.asarray(source, copy=True), xp, repeats)


class Traffic(NamedTuple):
    """What an array program does: bytes of operands and results, numbers computed, calls."""

    read_bytes: int
    written_bytes: int
    operations: int
    calls: int


def _plain(value: Any) -> Any:
    """Value without record, lists and tuples searched."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(map(_plain, value))
    return value.view(np.ndarray) if isinstance(value, _Recorded) else value


class _Recorded(np.ndarray[Any, Any]):
    """NumPy array whose operations are recorded."""

    record: list[Traffic] = []

    @classmethod
    def note(cls, operands: Any, result: Any) -> Any:
        """Record one operation and hand on its result."""
        if isinstance(result, tuple):
            return tuple(cls.note(operands, each) for each in result)
        arrays = [x for x in operands if isinstance(x, np.ndarray)]
        if not isinstance(result, np.ndarray | np.generic) or any(
                np.may_share_memory(result, x) for x in arrays):
            return result.view(cls) if isinstance(result, np.ndarray) else result
        cls.record.append(Traffic(sum(x.nbytes for x in arrays), result.nbytes, result.size, 1))
        return np.asarray(result).view(cls)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = _plain(inputs)
        return self.note(plain, getattr(ufunc, method)(*plain, **options))

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        plain = _plain(inputs)
        result = function(*plain, **{name: _plain(value) for name, value in options.items()})
        flat = plain[0] if isinstance(plain[0], list) else plain
        return self.note([np.array(result), *flat[1:]] if function is np.take else flat, result)

    def __getitem__(self, index: Any) -> Any:
        plain = _plain(index if isinstance(index, tuple) else (index,))
        result = self.view(np.ndarray)[plain]
        chosen = [x for x in plain if isinstance(x, np.ndarray)]
        return self.note([np.array(result), *chosen], result) if chosen else result.view(_Recorded)


def _recorded(values: Any) -> Any:
    """NumPy arrays with record, tuples searched."""
    if isinstance(values, tuple):
        inner = [_recorded(value) for value in values]
        return type(values)(*inner) if hasattr(values, "_fields") else tuple(inner)
    return values.view(_Recorded) if isinstance(values, np.ndarray) else values


def traffic_of(function: Callable[..., Any], *arguments: Any) -> Traffic:
    """Work of one call on NumPy arrays, every operation on arrays counted.

    Parameters
    ----------
    function : an array program
    arguments : arrays, tuples of arrays, or anything else

    Notes
    -----
    Reading at a list of positions counts what is read, not the whole array. Views move nothing.
    `put` is not counted.
    """
    _Recorded.record = []
    function(*map(_recorded, arguments))
    return Traffic(*(sum(each[i] for each in _Recorded.record)
                     for i in range(len(Traffic._fields))))
