"""Array functions from NumPy or CuPy under the same names, one step that their standard leaves out, and rulers for time, bytes and memory."""

# A module, written by hand.

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .frames import InputError, check_one_of

__all__ = ['get_xp', 'to_host', 'to_device', 'best_time_s']

Array = Any  # of any device
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]
Texts = NDArray[np.object_]

DEVICES = ("cpu", "cuda", "strict")


def _cupy() -> Any:
    """Functions of CuPy, if there is a GPU for them."""
    try:
        import array_api_compat.cupy as cupy
    except ImportError as error:
        raise InputError(f"device 'cuda' needs CuPy ({error})", value="cuda",
                         mend="pip install 'sched_lab[gpu]', or choose the device 'cpu'") from None
    xp: Any = cupy
    try:
        num_gpus = int(xp.cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        raise InputError(f"CuPy cannot use a GPU ({error})", value="cuda",
                         mend="install a driver for the GPU, or choose the device 'cpu'") from None
    if num_gpus == 0:
        raise InputError("CuPy finds no GPU", value="cuda", mend="choose the device 'cpu'")
    return xp


def get_xp(device: str = "cpu") -> Any:
    """Array functions that compute on a device, under the names of the array standard.

    Parameters
    ----------
    device : "cpu" is NumPy, "cuda" is CuPy on the current GPU, "strict" is a slow NumPy that
        refuses whatever the standard does not promise, for tests

    Raises
    ------
    InputError : no such device, its package is not installed, or there is no GPU
    """
    if device == "cuda":
        return _cupy()
    if device == "strict":
        try:
            import array_api_strict as strict
        except ImportError as error:
            raise InputError(
                f"device 'strict' needs array-api-strict ({error})", value="strict",
                mend="pip install array-api-strict, or choose the device 'cpu'") from None
        return strict
    check_one_of(device, DEVICES, "device")
    return np


def to_host(x: Array) -> np.ndarray[Any, Any]:
    """Array of any device as a NumPy array."""
    return np.asarray(x.get() if hasattr(x, "get") else x)


def to_device(values: Any, xp: Any) -> Any:
    """NumPy arrays as arrays of a device; tuples are searched for them, all else stays as it is.

    Parameters
    ----------
    values : of NumPy
    xp : array functions of the device
    """
    if isinstance(values, np.ndarray):
        return xp.asarray(values)
    if isinstance(values, tuple):
        inner = [to_device(value, xp) for value in values]
        return type(values)(*inner) if hasattr(values, "_fields") else tuple(inner)
    return values


def put(x: Array, index: Array, values: Array) -> None:
    """Set `x[index] = values` for distinct positions on the first axis, which no standard has."""
    try:
        x[index] = values
    except IndexError:  # array-api-strict: position by position
        for i, position in enumerate(to_host(index).tolist()):
            x[position, ...] = values[i, ...]


def in_rows(xp: Any, x: Array) -> Array:
    """Same array, in memory row after row: a transposed one is otherwise read across."""
    return xp.reshape(xp.reshape(x, (-1,)), x.shape)


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


def free_bytes(xp: Any) -> int:
    """Memory that an array program may still take on its device."""
    import psutil

    if hasattr(xp, "cuda"):
        pool = xp.get_default_memory_pool()
        return int(xp.cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())
    return int(psutil.virtual_memory().available)


def that_fit(bytes_each: int, max_bytes: int, asked: int | None = None,
             what: str = "replicas") -> int:
    """How many things of equal size to hold at once: as many as asked for, else as many as fit.

    Raises
    ------
    InputError : they do not fit, or fewer than one was asked for; it names the number that does fit
    """
    most = max_bytes // bytes_each
    if asked is not None and asked < 1:
        raise InputError(f"{asked} {what} at once is too few", value=str(asked),
                         mend="ask for 1 or more")
    if most < (asked or 1):
        raise InputError(
            f"{asked or 1} {what} need {(asked or 1) * bytes_each / 2**30:.3g} GiB, "
            f"{max_bytes / 2**30:.3g} GiB may be taken", value=str(asked or 1),
            mend=f"ask for at most {most}"
            if most else "give more memory, or a smaller cluster or trace")
    return asked or most
