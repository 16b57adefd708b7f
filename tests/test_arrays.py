"""Array functions of each device, the step that the standard leaves out, and the memory that is free."""
import builtins
import sys
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from sched_lab.lab.arrays import (
    DEVICES,
    free_bytes,
    get_xp,
    in_rows,
    put,
    that_fit,
    to_device,
    to_host,
)
from sched_lab.lab.frames import InputError


def here(device):
    """Array functions of a device, or the reason why there are none."""
    try:
        return get_xp(device)
    except InputError as error:
        pytest.skip(f"{device}: {error}")


@pytest.fixture(params=DEVICES)
def xp(request):
    return here(request.param)


class Pair(NamedTuple):
    left: object
    right: object


def test_an_unknown_device_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="are cpu, cuda, strict"):
        get_xp("gpu")


@pytest.mark.parametrize(("device", "package"), [("cuda", "array_api_compat.cupy"), ("strict", "array_api_strict")])
def test_a_missing_package_is_named(monkeypatch, device, package):
    real = builtins.__import__

    def without(name, *args, **options):
        if name == package:
            raise ImportError(f"No module named {package!r}")
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=f"needs .*No module named '{package}'.*pip install"):
        get_xp(device)


def fake_cupy(monkeypatch, count):
    """CuPy as it looks from here, with `count()` GPUs."""
    fake = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=count)))
    package = SimpleNamespace(cupy=fake)
    monkeypatch.setitem(sys.modules, "array_api_compat", package)
    monkeypatch.setitem(sys.modules, "array_api_compat.cupy", fake)
    return fake


def no_driver():
    raise RuntimeError("cudaErrorInsufficientDriver")


@pytest.mark.parametrize(("count", "words"), [(no_driver, "cudaErrorInsufficientDriver.*driver"),
                                              (lambda: 0, "finds no GPU.*'cpu'")])
def test_cupy_without_a_gpu_is_an_error_that_names_the_way_out(monkeypatch, count, words):
    fake_cupy(monkeypatch, count)
    with pytest.raises(InputError, match=words):
        get_xp("cuda")


def test_cupy_with_a_gpu_is_taken(monkeypatch):
    fake = fake_cupy(monkeypatch, lambda: 1)
    assert get_xp("cuda") is fake


def test_arrays_go_there_and_back_and_nothing_else_changes(xp):
    there = to_device(Pair(np.arange(3), ("text", (np.ones(2), 7))), xp)
    assert isinstance(there, Pair) and there.right[0] == "text" and there.right[1][1] == 7
    assert type(there.left) is type(xp.zeros(1)) and to_host(there.left).tolist() == [0, 1, 2]
    assert to_host(there.right[1][0]).tolist() == [1.0, 1.0]


def test_put_writes_positions_and_rows(xp):
    x = xp.zeros(4, dtype=xp.int64)
    put(x, xp.asarray([2, 0]), xp.asarray([20, 10]))
    assert to_host(x).tolist() == [10, 0, 20, 0]
    rows = xp.zeros((3, 2), dtype=xp.int64)
    put(rows, xp.asarray([2, 1]), xp.asarray([[5, 6], [7, 8]]))
    assert to_host(rows).tolist() == [[0, 0], [7, 8], [5, 6]]


def test_in_rows_changes_the_place_in_memory_and_nothing_else(xp):
    turned = xp.permute_dims(xp.reshape(xp.arange(6), (2, 3)), (1, 0))
    assert to_host(in_rows(xp, turned)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert in_rows(np, np.arange(6).reshape(2, 3).T).flags.c_contiguous


# --- memory


@pytest.mark.parametrize(("each", "most", "asked", "fit"), [(10, 100, None, 10), (10, 109, None, 10), (10, 100, 10, 10),
                                                           (10, 100, 3, 3), (10, 10, 1, 1)])
def test_as_many_as_asked_for_else_as_many_as_fit(each, most, asked, fit):
    assert that_fit(each, most, asked) == fit


@pytest.mark.parametrize(("each", "most", "asked", "words"), [
    (2**30, 2**32, 5, r"5 replicas need 5 GiB, 4 GiB may be taken.*ask for at most 4"),
    (2**33, 2**32, None, r"1 replicas need 8 GiB.*smaller cluster"),
    (10, 100, 0, "0 replicas at once is too few"),
])
def test_what_does_not_fit_is_refused_with_the_number_that_does(each, most, asked, words):
    with pytest.raises(InputError, match=words):
        that_fit(each, most, asked)


def test_some_memory_is_free(xp):
    assert free_bytes(xp) > 2**20


def test_memory_of_a_gpu_is_what_the_driver_and_the_pool_have_left():
    fake = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(memGetInfo=lambda: (100, 900))),
                           get_default_memory_pool=lambda: SimpleNamespace(free_bytes=lambda: 11))
    assert free_bytes(fake) == 111
