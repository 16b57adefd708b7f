"""The paper's workload: the reference's bounds on Gavel's speeds, the synthetic table, laws of the draw, bad input."""
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.model import SECONDS_PER_HOUR
from sched_lab.hadar.workload import (
    GANGS,
    GAVEL_TYPES,
    GPU_HOURS,
    MODELS,
    default_throughputs,
    draw_workload,
    keys_of,
)
from sched_lab.lab.frames import InputError, embedded
from sched_lab.traces import find_data
from studies.embedded import synthetic_throughputs
from studies.gavel import read_gavel_throughputs

SPEEDS = default_throughputs()
GAVEL = find_data("gavel/throughputs.csv")
gavel = pytest.mark.skipif(GAVEL is None, reason="../shared/data/gavel/throughputs.csv is absent")
# --- Gavel's table and the reference's traces ------------------------------------------------------------------------

@gavel
def test_gavels_table_is_read_with_its_gaps():
    speeds = read_gavel_throughputs(GAVEL)
    assert len(speeds.row) == 83 and speeds.type_name == GAVEL_TYPES
    row = speeds.row["ResNet-50 (batch size 64)", 2]  # spread over K80s it was not measured: the packed rate stands in
    assert speeds.rate[row].tolist() == [7.922054, 5.515986, 1.263637]
    assert speeds.spread_rate[row].tolist() == [6.865937, 5.605965, 1.263637]
    zeros = {key for key, row in speeds.row.items() if (speeds.rate[row] == 0).any()}
    assert zeros == {("ResNet-50 (batch size 128)", size) for size in (2, 4, 8)}
    assert speeds.row["CycleGAN", 1] == 1


@gavel
def test_the_ratios_of_the_synthetic_table_are_within_the_measured_ones():
    measured = read_gavel_throughputs(GAVEL)
    for model in {key.split(" (")[0] for key, _ in SPEEDS.row}:
        ours = SPEEDS.rate[[SPEEDS.row[key, 1] for key in keys_of(SPEEDS, model, 1)]]
        theirs = measured.rate[[measured.row[key, 1] for key in keys_of(measured, model, 1)]]
        for kind in (0, 1):
            low = (theirs[:, kind] / theirs[:, 2]).min()
            high = (theirs[:, kind] / theirs[:, 2]).max()
            assert low * 0.94 <= (ours[0, kind] / ours[0, 2]) <= high * 1.06, (model, kind)


# --- the synthetic table ---------------------------------------------------------------------------------------------

def test_the_embedded_table_is_what_its_function_gives():
    text = synthetic_throughputs().to_csv(index=False, lineterminator="\n")
    assert embedded("hadar_throughputs.csv").read_text(encoding="utf-8") == text


def test_the_synthetic_table_obeys_its_laws():
    # a spread gang is never faster, a larger gang always, a larger batch never, and one worker cannot be spread
    assert (SPEEDS.spread_rate <= SPEEDS.rate).all() and (SPEEDS.rate[:, :2] > 0).all()
    for (key, workers), row in SPEEDS.row.items():
        if workers == 1:
            assert (SPEEDS.rate[row] == SPEEDS.spread_rate[row]).all() and (SPEEDS.rate[row] > 0).all()
            assert SPEEDS.rate[row, 0] >= SPEEDS.rate[row, 1] > SPEEDS.rate[row, 2]
        elif (SPEEDS.rate[row] > 0).all():
            assert (SPEEDS.rate[row] > SPEEDS.rate[SPEEDS.row[key, workers // 2]]).all()
    for model in sum(MODELS.values(), ()):
        for workers in (1, 2, 4, 8):
            rates = SPEEDS.rate[[SPEEDS.row[key, workers] for key in keys_of(SPEEDS, model, workers)]]
            assert (np.diff(rates, axis=0) < 0).all()


# --- laws of the draw ------------------------------------------------------------------------------------------------

@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from(GAVEL_TYPES), st.sampled_from(sorted(GANGS)),
       st.floats(0.1, 3))
def test_every_job_is_one_that_the_paper_describes(seed, num_jobs, reference, gangs, scale):
    options = {"num_jobs": num_jobs, "reference": reference, "gangs": gangs, "scale": scale}
    workload = draw_workload(SPEEDS, seed, **options)
    jobs = workload.jobs
    kind = GAVEL_TYPES.index(reference)
    gpu_hours = jobs.steps * jobs.workers / jobs.rate[:, kind] / SECONDS_PER_HOUR / scale
    for name, hours, rate, workers in zip(workload.job_name, gpu_hours, jobs.rate, jobs.workers, strict=True):
        group = name.split("-")[0]
        low, high = GPU_HOURS[group]
        assert low * (1 - 1e-9) <= hours <= high * (1 + 1e-9)
        rows = [SPEEDS.row[key, workers] for model in MODELS[group] for key in keys_of(SPEEDS, model, int(workers))]
        assert (SPEEDS.rate[rows] == rate).all(axis=1).any() and (rate > 0).all()
        assert workers in GANGS[gangs] and not (group == "M" and workers > 1)
    assert len(set(workload.job_name)) == len(jobs.steps) == num_jobs and (jobs.arrival_s == 0).all()
    again = draw_workload(SPEEDS, seed, **options)
    assert again.job_name == workload.job_name and (again.jobs.steps == jobs.steps).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(sorted(GANGS)))
def test_a_longer_draw_begins_like_a_shorter_one(seed, gangs):
    short, long = (draw_workload(SPEEDS, seed, num_jobs=number, gangs=gangs) for number in (10, 25))
    assert long.job_name[:10] == short.job_name and (long.jobs.steps[:10] == short.jobs.steps).all()


def test_shares_of_gangs_add_up_and_philly_counts_the_published_jobs():
    assert all(sum(shares.values()) == pytest.approx(1, abs=1e-9) for shares in GANGS.values())
    jobs = {1: 25_304, 2: 665, 4: 3076, 8: 4147}  # of Gavel's philly_job_distribution.pickle
    assert GANGS["philly"] == {size: round(count / sum(jobs.values()), 6) for size, count in jobs.items()}


def test_a_gang_that_was_not_measured_becomes_one_worker():
    single = {key: row for key, row in SPEEDS.row.items() if key[1] == 1}
    assert (draw_workload(replace(SPEEDS, row=single), 0, num_jobs=60).jobs.workers == 1).all()


# --- bad input -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("options", "message"), [
    ({"reference": "a100"}, "unknown reference 'a100'.*v100, p100, k80"),
    ({"gangs": "large"}, "gangs 'large'.*gavel, philly, one"),
    ({"num_jobs": 0}, "0 jobs"),
    ({"scale": 0.0}, "scaled by 0.0"),
    ({"scale": float("nan")}, "scaled by nan"),
])
def test_unknown_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        draw_workload(SPEEDS, 0, **options)


def test_a_table_of_other_gpus_or_without_a_model_is_refused():
    with pytest.raises(InputError, match="speeds are of a, b, c"):
        draw_workload(replace(SPEEDS, type_name=("a", "b", "c")), 0)
    without = {key: row for key, row in SPEEDS.row.items() if not key[0].startswith("LM")}
    with pytest.raises(InputError, match="one worker of LM"):
        draw_workload(replace(SPEEDS, row=without), 0)
    nowhere = SPEEDS.rate.copy()
    nowhere[SPEEDS.row["CycleGAN", 1], 2] = 0  # would be drawn again for ever
    with pytest.raises(InputError, match="one worker of CycleGAN"):
        draw_workload(replace(SPEEDS, rate=nowhere), 0)


@pytest.mark.parametrize(("row", "message"), [
    ("LM,5,0,1,1,1,1,1,1", "row 2, column scale_factor: 0 is below 1"),
    ("LM,5,1,fast,1,1,1,1,1", "column v100_steps_per_s: 'fast' is not a number"),
    ("LM,5,1,1,1,1,1,1,-1", "column k80_unconsolidated_steps_per_s: -1 is negative"),
])
def test_a_wrong_cell_of_gavels_table_is_named(tmp_path, row, message):
    header = [f"{name}{kind}_steps_per_s" for kind in ("", "_unconsolidated") for name in GAVEL_TYPES]
    (tmp_path / "t.csv").write_text("model,batch_size,scale_factor," + ",".join(header) + f"\n{row}\n")
    with pytest.raises(InputError, match=message):
        read_gavel_throughputs(tmp_path / "t.csv")
