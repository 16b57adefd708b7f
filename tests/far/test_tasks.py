"""Times of tasks on slices: the reader refuses what is wrong, and the generator draws what Section 6.3 says."""
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.far.mig import mig_of
from sched_lab.far.tasks import (
    NEAR,
    SCALINGS,
    SUB,
    WIDTHS,
    Batch,
    generate_times,
    read_times,
    split_evenly,
)
from sched_lab.lab.frames import InputError

A30 = mig_of("A30")
A100 = mig_of("A100")


def read_text(folder: Path, text: str, batch: str | None = None) -> Batch:
    (folder / "times.csv").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning that a test does not expect fails it
        return read_times(folder / "times.csv", A30, batch=batch)


def test_columns_are_sizes_in_any_order_and_may_name_the_batch(tmp_path: Path) -> None:
    text = "4,task,day,1,2,3,note\n2,a,mon,,3,9,hi\n1,b,tue,9,5,9,\n"
    batch = read_text(tmp_path, text, "day")
    assert batch.group.tolist() == ["mon", "tue"] and read_text(tmp_path, text).group.tolist() == ["", ""]
    assert batch.times_s.tolist() == [[np.inf, 3, 2], [9, 5, 1]]
    with pytest.raises(InputError, match="column night: the column is missing"):
        read_text(tmp_path, text, "night")


@pytest.mark.parametrize(("text", "message"), {
    "zero": ("task,1,2,4\na,4,0,2\n", "row 2, column 2: 0 is below .* give 1e-06 to 1e.12 seconds"),
    "negative": ("task,1,2,4\na,4,3,2\nb,4,3,-2\n", "row 3, column 4: -2 is below"),
    "fits nowhere": ("task,1,2,4\na,4,3,2\nb,,,\n", "row 3: fits on no instance size; give a time"),
    "not a number": ("task,1,2,4\na,4,soon,2\n", "row 2, column 2: 'soon' is not a number"),
    "duplicate": ("task,1,2,4\na,4,3,2\na,5,3,2\n", "row 3, column task: 'a' is already in row 2"),
    "no name": ("task,1,2,4\n,4,3,2\n", "row 2, column task"),
    "no column": ("task,1,4\na,4,2\n", "row 1, column 2: the column is missing"),
    "no row": ("task,1,2,4\n", "header but no row"),
}.values())
def test_what_is_wrong_is_named_with_row_and_column(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_text(tmp_path, text)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 200), st.sampled_from(sorted(SCALINGS)))
def test_counts_sum_up_and_are_at_most_one_off(num_tasks: int, scaling: str) -> None:
    shares = SCALINGS[scaling]
    counts = split_evenly(num_tasks, shares)
    assert sum(counts.values()) == num_tasks
    assert all(abs(counts[size] - num_tasks * share) < 1 for size, share in shares.items())


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.sampled_from(sorted(SCALINGS)), st.sampled_from(sorted(WIDTHS)), st.floats(0, 1),
       st.sampled_from([SUB, NEAR]))
def test_times_never_grow_stay_in_range_and_repeat(seed: int, scaling: str, width: str, p_sup: float,
                                                   after: int) -> None:
    def drawn(seed: int) -> np.ndarray:
        return generate_times(A100, 12, SCALINGS[scaling], WIDTHS[width], np.random.default_rng(seed),
                              super_share=p_sup, after=after)

    times_s = drawn(seed)
    low, high = WIDTHS[width]
    assert times_s.shape == (12, 5) and (times_s > 0).all() and (np.diff(times_s, axis=1) <= 0).all()
    assert (low <= times_s[:, 0]).all() and (times_s[:, 0] <= high).all()
    assert np.array_equal(times_s, drawn(seed)) and not np.array_equal(times_s, drawn(seed + 1))


@pytest.mark.parametrize(("exploits", "p_sup", "low", "high", "mean"), [
    (1, 0.0, 0.75, 1.0, 0.875),  # r in [0.5, 1], mean 0.75: (1 + r)/2
    (2, 0.0, 0.5, 0.6, 0.55),  # r in [0, 0.2], mean 0.1
    (2, 1.0, 0.25, 0.5, 0.375),  # r in [-0.5, 0], mean -0.25
])
def test_first_steps_have_the_limits_and_means_of_the_paper(exploits: int, p_sup: float, low: float, high: float,
                                                           mean: float) -> None:
    times_s = generate_times(A30, 20_000, {exploits: 1.0}, WIDTHS["wide"], np.random.default_rng(0), super_share=p_sup)
    factor = times_s[:, 1] / times_s[:, 0]
    assert low - 1e-12 <= factor.min() and factor.max() <= high + 1e-12
    # the deviation of r is below 0.25, so that of the mean factor of 20 000 is below 0.001
    assert abs(factor.mean() - mean) < 0.004


def test_the_share_of_memory_bound_tasks_is_rounded_up() -> None:
    # 5 tasks exploit 2 slices; ceil(0.5 * 5) = 3 of them at least halve their time, the others do not (up to r = 0)
    rng = np.random.default_rng(3)
    for _ in range(20):
        times_s = generate_times(A30, 5, {2: 1.0}, WIDTHS["wide"], rng, super_share=0.5)
        factor = times_s[:, 1] / times_s[:, 0]
        assert (factor <= 0.5 + 1e-12).sum() >= 3 and (factor >= 0.5 - 1e-12).sum() >= 2


def test_after_memory_bound_near_scales_better_than_sub() -> None:
    def mean_step(after: int) -> float:
        times_s = generate_times(A30, 20_000, {4: 1.0}, WIDTHS["wide"], np.random.default_rng(1), super_share=1.0,
                                 after=after)
        return float((times_s[:, 2] / times_s[:, 1]).mean())

    # from 2 to 4 slices: (2 + r)/3 * (3 + r)/4; super 0.49 of the tasks: 1.75/3 * 2.75/4 = 0.401;
    # sub: 2.75/3 * 3.75/4 = 0.859, near: 2.1/3 * 3.1/4 = 0.5425
    assert abs(mean_step(SUB) - (0.49 * 0.401 + 0.51 * 0.859)) < 0.01
    assert abs(mean_step(NEAR) - (0.49 * 0.401 + 0.51 * 0.5425)) < 0.01
