"""Array functions from NumPy or CuPy under the same names, one step that their standard leaves out, and the memory that is free."""

# A module, written by hand.

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .frames import InputError, check_one_of

__all__ = ['get_xp', 'to_host', 'to_device']

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


def free_bytes(xp: Any) -> int:
    """Memory that an array program may still take on its device."""
    import psutil

    if hasattr(xp, "cuda"):
        pool = xp.get_default_memory_pool()
        return int(xp.cuda.runtime.memGetInfo()[0]) + int(pool.free_bytes())
    return int(psutil.virtual_memory().available)


def that_fit(bytes_each: int, max_bytes: int, asked: int | None = None) -> int:
    """How many replicas of equal size to hold at once: as many as asked for, else as many as fit.

    Raises
    ------
    InputError : they do not fit, or fewer than one was asked for; it names the number that does fit
    """
    most = max_bytes // bytes_each
    if asked is not None and asked < 1:
        raise InputError(f"{asked} replicas at once is too few", value=str(asked),
                         mend="ask for 1 or more")
    if most < (asked or 1):
        raise InputError(
            f"{asked or 1} replicas need {(asked or 1) * bytes_each / 2**30:.3g} GiB, "
            f"{max_bytes / 2**30:.3g} GiB may be taken", value=str(asked or 1),
            mend=f"ask for at most {most}"
            if most else "give more memory, or a smaller cluster or trace")
    return asked or most
