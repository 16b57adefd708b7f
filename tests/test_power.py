"""Power models: load curves between idle and full, tables of watts from files."""
import re
from fractions import Fraction
from math import ceil, floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.cluster import Cluster, toy_cluster
from sched_lab.lab.frames import InputError
from sched_lab.online.inflation import inflate
from sched_lab.online.model import PowerSettings
from sched_lab.power import (
    CPU_POWER_W,
    GPU_POWER_W,
    LOAD_CURVES,
    cpu_power_milliwatt,
    cpu_power_w,
    gpu_power_milliwatt,
    gpu_power_w,
    load_permille,
    power_of,
    read_cpu_power,
    read_gpu_power,
)
from sched_lab.traces import Arrivals, toy_tasks
from tests.command_line import assert_refused_at

ANT, BEE, CAT, DOG = range(4)  # 16, 32, 64, 32 vCPU; 2 x T4, 4 x G2, 1 x A100, none
repeatable = settings(derandomize=True, deadline=None, max_examples=50)


def one_node(vcpu: int, cpu_model: str = "") -> Cluster:
    """Make a node with two T4."""
    return Cluster(np.array(["n"], object), np.array([vcpu * 1000]), np.array([0]), np.array([2]),
                   np.array(["T4"], object), np.array([cpu_model], object))


# --- load curves


@repeatable
@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6))
def test_knots_in_any_rising_order_make_a_rising_curve_through_them(inner: list[tuple[int, int]]) -> None:
    knots = [(0, 0), *zip(sorted(load for load, _ in inner), sorted(share for _, share in inner), strict=True),
             (1000, 1000)]
    shares = [[load / 1000, share / 1000] for load, share in knots]
    drawn = load_permille(shares)
    assert drawn[0] == 0 and drawn[-1] == 1000 and (np.diff(drawn) >= 0).all()
    for load, share in knots:
        if load > 0 and [other for other, _ in knots].count(load) == 1:  # at a jump either end may be taken
            assert drawn[load] == share
    as_text = ",".join(f"{load}:{share}" for load, share in shares)
    assert load_permille(as_text).tolist() == drawn.tolist()


def test_between_knots_a_curve_is_a_straight_line() -> None:
    # 0 to 0.5: 0 to 0.7; 0.5 to 1: 0.7 to 1. At 0.2: 0.28, at 0.75: 0.85
    assert load_permille("0:0,0.5:0.7,1:1")[[200, 500, 750]].tolist() == [280, 700, 850]


@pytest.mark.parametrize("curve", [
    "cubic", "", "0:0;1:1", "0:0,1", "0:0:0,1:1:1", [], [0, 1], [[0, 0], [1, 1, 1]], [["low", 0], [1, 1]], [[[0, 0]]]])
def test_what_is_no_list_of_pairs_is_no_load_curve(curve: object) -> None:
    with pytest.raises(InputError, match="there is no load curve") as caught:
        load_permille(curve)  # type: ignore[arg-type]
    assert caught.value.mend == "choose one of step, linear, concave, or give knots such as 0:0,0.5:0.7,1:1"


@pytest.mark.parametrize("knots", [
    "0:0,0.5:0.5", "0.1:0,1:1", "0:0.1,1:1", "0:0", "0:0,0.5:0.7,0.4:0.8,1:1", "0:0,0.4:0.8,0.5:0.7,1:1",
    "0:0,0.5:1.2,1:1", "0:0,0.5:nan,1:1", "0:0,inf:0.5,1:1"])
def test_knots_must_rise_from_zero_to_one(knots: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"the load curve {knots!r} does not rise from 0:0 to 1:1; give")):
        power_of(toy_cluster(), load_curve=knots)


# --- watts under a curve


@repeatable
@given(vcpu=st.integers(1, 140), left=st.floats(0, 1), package=st.booleans())
def test_the_step_is_the_formula_of_the_paper_and_the_count_of_the_code(vcpu: int, left: float, package: bool) -> None:
    capacity = 1000 * vcpu
    free = int(left * capacity)
    if package:  # sockets of 16 cores; of a core in use nothing is idle
        cores = ceil(Fraction(capacity, 2000))
        idle_cores = free // 2000
        sockets = ceil(Fraction(cores, 16))
        active = ceil(Fraction(cores - idle_cores, 16))
        watts = 15 * (sockets - active) + 120 * active
    else:
        watts = 120 * ceil(Fraction(capacity - free, 32_000)) + 15 * floor(Fraction(free, 32_000))
    power = power_of(one_node(vcpu), "package" if package else "eq1")
    assert cpu_power_milliwatt(power, 0, free) == 1000 * watts
    assert cpu_power_w(power, 0, free) == watts


@pytest.mark.parametrize("model", ["eq1", "package"])
def test_linear_cpus_by_hand(model: str) -> None:
    # cat: 2 CPUs of 32 vCPU, 15 to 120 W. 8 vCPU in use: 15 + 105/4 and one idle; 40: one full and 15 + 105/4
    power = power_of(toy_cluster(), model, load_curve="linear")
    assert [cpu_power_w(power, CAT, 1000 * (64 - used)) for used in (0, 8, 32, 40, 64)] == [
        30, 15 + 26.25 + 15, 120 + 15, 120 + 15 + 26.25, 240]


@pytest.mark.parametrize(("curve", "watts"), [("step", 70), ("linear", 10 + 60 * 0.3), ("concave", 10 + 60 * 0.409)])
def test_a_share_of_300_of_a_t4_by_hand(curve: str, watts: float) -> None:
    # concave at 0.3: 0.356 + 0.2 * (0.621 - 0.356) = 0.409; the other T4 is idle, 10 W
    power = power_of(toy_cluster(), load_curve=curve)
    left = np.array([1000, 700, 0, 0])
    assert gpu_power_milliwatt(power, ANT, left) == round(1000 * (10 + watts))
    assert gpu_power_w(power, ANT, left) == pytest.approx(10 + watts, abs=1e-9)


@pytest.mark.parametrize("curve", [*LOAD_CURVES, "0:0,0.2:0.2,0.2:0.9,1:1"])
def test_more_in_use_never_draws_less(curve: str) -> None:
    power = power_of(toy_cluster(), "package", load_curve=curve)  # Eq. 1 as printed can fall, see chapter 12
    cpu = [cpu_power_milliwatt(power, CAT, left) for left in range(64_000, -1, -125)]
    gpu = [gpu_power_milliwatt(power, CAT, np.array([left, 0, 0, 0])) for left in range(1000, -1, -1)]
    assert (np.diff(cpu) >= 0).all() and (np.diff(gpu) >= 0).all()
    assert (cpu[0], cpu[-1], gpu[0], gpu[-1]) == (30_000, 240_000, 50_000, 400_000)


def test_a_run_under_a_curve_adds_up_the_nodes() -> None:
    # task one alone, 4 vCPU and a share of 500, on cat. Linear: one CPU at an eighth, 15 + 105/8; the A100 half, 225 W
    # Eq. 1 counts a free CPU of cat and one of each of bee and dog; ant's 16 vCPU are none. GPUs: 20 + 120 idle
    run = inflate(toy_cluster(), toy_tasks(), "fgd", arrivals=Arrivals(np.array([0]), np.arange(4)),
                  power=PowerSettings(load_curve="linear"))
    assert run.assignments["node"].tolist() == ["cat"]
    assert run.curve.loc[0, ["cpu_w", "gpu_w"]].tolist() == [15 + 13.125 + 15 + 15 + 15, 225 + 20 + 120]


# --- tables from files

GPUS = "model,idle_w,full_w\nT4,9,72\nH100,70,700\n"
CPUS = "model,idle_w,full_w,cores\n,20,200,32\n8163,30,165,24\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "power.csv"
    file.write_text(text)
    return file


def test_tables_are_read(tmp_path: Path) -> None:
    assert read_gpu_power(written(tmp_path, GPUS)) == {"T4": (9, 72), "H100": (70, 700)}
    assert read_cpu_power(written(tmp_path, CPUS)) == {"": (20, 200, 32), "8163": (30, 165, 24)}


def test_tables_add_and_override_for_one_power_model_only(tmp_path: Path) -> None:
    gpu = read_gpu_power(written(tmp_path, GPUS))
    cpu = read_cpu_power(written(tmp_path, CPUS))
    power = power_of(one_node(96, "8163"), "package", gpu, cpu)
    # 96 vCPU are 48 cores: two CPUs of 24
    assert cpu_power_w(power, 0, 96_000) == 2 * 30 and gpu_power_w(power, 0, np.array([1000, 1000])) == 2 * 9
    assert GPU_POWER_W["T4"] == (10, 70) and "8163" not in CPU_POWER_W
    named_nothing = power_of(one_node(64), "package", gpu, cpu)
    assert cpu_power_w(named_nothing, 0, 63_000) == 200  # one CPU of 32 cores, at work


@pytest.mark.parametrize(("right", "wrong", "where", "what"), [
    ("24\n", "0\n", "row 3, column cores", "0"),
    ("cores", "threads", "row 1, column cores", "missing"),
    ("30,165", "165,30", "row 3, column full_w", "full power is below idle power"),
    ("30,165", "-1,165", "row 3, column idle_w", "negative"),
    ("8163", "", "row 3, column model", "a row already"),
])
def test_a_wrong_table_of_cpus_is_refused_with_its_place(
        tmp_path: Path, right: str, wrong: str, where: str, what: str) -> None:
    assert_refused_at(read_cpu_power, written(tmp_path, CPUS.replace(right, wrong)), where, what)


def test_a_wrong_table_of_gpus_is_refused_with_its_place(tmp_path: Path) -> None:
    file = written(tmp_path, GPUS.replace("70,700", "700,70"))
    assert_refused_at(read_gpu_power, file, "row 3, column full_w", "full power is below idle power")


def test_a_model_without_watts_is_refused() -> None:
    with pytest.raises(InputError, match="no power entry for CPU model '8163'.*add one; there are E5-2682 v4"):
        power_of(one_node(96, "8163"))
