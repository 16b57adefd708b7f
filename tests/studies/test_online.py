"""Experiments give the stored frames again."""
from functools import partial

import pytest

from studies.online import (
    CLAIMS,
    EXPERIMENTS,
    bound_row,
    files_of,
    frontier_row,
    policy_row,
)
from studies.reproduction import reproduce
from tests.studies.stored import RESULTS, place_with, stored

CHEAP = ("cluster-power", "traces", "rescored")


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_experiment_gives_the_stored_frames(name, tmp_path):
    place = place_with(tmp_path, EXPERIMENTS[name].needs)
    found = reproduce(EXPERIMENTS, CLAIMS, [name], results=RESULTS, workplace=place, check=True)
    assert list(found["frame"]) == list(EXPERIMENTS[name].frames)
    assert set(found["outcome"]) == {"same"} and set(found["claims moved"]) == {""}


def test_bounds_of_a_few_cells_are_those_of_the_stored_frames(tmp_path):
    files = files_of(place_with(tmp_path, EXPERIMENTS["bounds-policies"].needs), "default")
    rows = {"bounds": (partial(bound_row, {"default": files}),
                       {"trace": "default", "seed": 42, "x": 0.2, "method": "aggregated"}),
            "bounds_policies": (partial(policy_row, files),
                                {"policy": "pwr", "seed": 43, "x": 1.0, "method": "aggregated"}),
            "bounds_frontier": (partial(frontier_row, files), {"share": 0.95, "method": "aggregated"})}
    for name, (row_of, cell) in rows.items():
        frame = stored(f"pwr/{name}.csv")
        for column, value in cell.items():
            frame = frame[frame[column] == value]
        assert len(frame) == 1
        assert row_of(**cell) == frame.iloc[0][list(row_of(**cell))].to_dict(), name
