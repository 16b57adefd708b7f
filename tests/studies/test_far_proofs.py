"""What is proved about FAR holds on every batch that we could think of, and the tight batches are tight."""
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.far.mig import mig_of
from sched_lab.lab.frames import read_frame
from studies.far_proofs import proved_factor, ratio_of, worst_ratio

MIGS = {f"{gpus} x {model}": mig_of(model, gpus) for model in ("A30", "A100", "H100") for gpus in (1, 2)}
TIGHT_S = {"A30": np.array([[1, 1, np.inf], [1, np.inf, 0.249], [np.inf, 1, 0.499]]),
           "A100": np.array([[1, 1, 1, 0.25, 0.25], [8, 8, 1.001, 1.001, 1.001], [9, 9, 1, 0.75, 0.75]])}
RATIOS = Path(__file__).resolve().parents[2] / "data" / "results" / "far" / "ratios.csv"


def tiny_batch(mig, rng):
    """Up to four tasks: any times, times that fall, whole times with ties, or tasks that do not fit everywhere."""
    shape = (int(rng.integers(1, 5)), len(mig.sizes))
    kind = rng.integers(4)
    times_s = rng.uniform(0.05, 1, shape) if kind < 2 else rng.integers(1, 6, shape).astype(float)
    if kind % 2:
        times_s = -np.sort(-times_s, axis=1)
    if rng.random() < 0.2:
        times_s[:, 1:][rng.random((shape[0], shape[1] - 1)) < 0.3] = np.inf
    return times_s


@pytest.mark.parametrize("name", MIGS)
def test_far_stays_within_the_proved_factor_on_random_batches(name):
    mig = MIGS[name]
    rng = np.random.default_rng(55)
    largest = 0.0
    for _ in range(300):
        found = ratio_of(mig, tiny_batch(mig, rng), with_phase_3=bool(rng.integers(2)))
        assert 1 - 1e-9 <= found.value <= proved_factor(mig) + 1e-9
        largest = max(largest, found.value)
    assert largest > 1.1  # the batches are not all easy


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(MIGS)), st.data())
def test_far_stays_within_the_proved_factor_near_the_tight_batches(name, data):
    mig = MIGS[name]
    tight_s = TIGHT_S["A30" if mig.model == "A30" else "A100"]
    scales = data.draw(st.lists(st.sampled_from([0.5, 0.999, 1.0, 1.001, 2.0]),
                                min_size=len(tight_s), max_size=len(tight_s)))
    more = data.draw(st.lists(st.sampled_from([0.25, 0.75, 1.0]), max_size=1))
    batch_s = np.vstack([tight_s * np.array(scales)[:, None], *(np.full(len(mig.sizes), time_s) for time_s in more)])
    assert ratio_of(mig, batch_s).value <= proved_factor(mig) + 1e-9


def test_search_gives_a_batch_with_the_ratio_it_reports():
    for seed in range(2):
        found = worst_ratio(mig_of("A30"), 3, seed, 200)
        assert found.ratio == ratio_of(mig_of("A30"), found.times_s).value > 1.2
        assert (np.diff(found.times_s, axis=1) <= 0).all()
        assert (worst_ratio(mig_of("A30"), 3, seed, 200).times_s == found.times_s).all()


def test_stored_searches_stay_below_the_proved_factors():
    frame = read_frame(RATIOS)
    assert set(zip(frame["model"], frame["num_gpus"], strict=True)) == {
        (model, g) for model in ("A30", "A100", "H100") for g in (1, 2)}
    for row in frame.itertuples():
        assert row.proved_factor == pytest.approx(proved_factor(mig_of(row.model, row.num_gpus)), abs=1e-6)
        assert 1 <= row.worst_ratio <= row.proved_factor + 1e-6 and row.batches >= 1000
