"""Experiments give the stored frames again; a changed frame is found, and the claim that it moves is named."""
from functools import cache, partial
from pathlib import Path

import pytest

from sched_lab.lab.frames import InputError, read_frame, write_frame
from sched_lab.traces import find_data, find_reference
from studies.online import (
    CLAIMS,
    EXPERIMENTS,
    FIGURES,
    Workplace,
    bound_row,
    files_of,
    frontier_row,
    policy_row,
)
from studies.reproduction import claims_frame, reproduce

RESULTS = Path(__file__).parents[2] / "data" / "results"
CHEAP = ("cluster-power", "traces", "rescored")


def find(name):
    """Return data or reference results of this name."""
    return find_data(name) or find_reference(name)


@cache
def stored(name):
    return read_frame(RESULTS / name)


def place_in(folder, name):
    """Workplace of an experiment whose data is here."""
    missing = [need for need in EXPERIMENTS[name].needs if find(need) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not here (sched-lab fetch openb)")
    return Workplace(folder / "cells", find=find)


@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_experiment_gives_the_stored_frames(name, tmp_path):
    place = place_in(tmp_path, name)
    found = reproduce(EXPERIMENTS, CLAIMS, [name], results=RESULTS, workplace=place, check=True)
    assert list(found["frame"]) == list(EXPERIMENTS[name].frames)
    assert set(found["outcome"]) == {"same"} and set(found["claims moved"]) == {""}


def test_bounds_of_a_few_cells_are_those_of_the_stored_frames(tmp_path):
    files = files_of(place_in(tmp_path, "bounds-policies"), "default")
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


def test_a_changed_frame_is_found_and_the_claim_it_moves_is_named(tmp_path):
    place = place_in(tmp_path, "cluster-power")
    power = stored("pwr/default_cluster_power.csv").copy()
    power.loc[power["state"] == "idle", "eopc_w"] -= 20_000
    for name in {frame for claim in CLAIMS for frame in claim.frames}:
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        write_frame(power if name == "pwr/default_cluster_power.csv" else stored(name), tmp_path / "results" / name, {})
    found = reproduce(EXPERIMENTS, CLAIMS, ["cluster-power"], results=tmp_path / "results", workplace=place, check=True)
    assert found["outcome"].item().startswith("differs: 2 rows differ in eopc_w")
    assert "EOPC of FGD starts just above 200 kW: 210.1 kW" in found["claims moved"].item()
    assert "-> 230.1 kW as the code counts, 222.2 kW by Eq. 1, direction only" in found["claims moved"].item()


def test_without_the_data_an_experiment_is_skipped_and_says_what_is_missing(tmp_path):
    found = reproduce(EXPERIMENTS, CLAIMS, ["bounds"], results=RESULTS, workplace=Workplace(tmp_path), check=True)
    assert "skipped: openb/openb_node_list_gpu_node.csv" in found["outcome"].item()
    with pytest.raises(InputError, match="openb_pod_list_default.csv"):
        EXPERIMENTS["traces"].compute(Workplace(tmp_path))


def test_every_stored_frame_has_one_experiment_and_every_claim_frames():
    frames = [frame for each in EXPERIMENTS.values() for frame in each.frames]
    assert len(set(frames)) == len(frames)
    there = {str(path.relative_to(RESULTS)) for folder in ("pwr", "traces", "batch")
             for path in (RESULTS / folder).glob("*.csv*")}
    assert there <= {*frames}
    assert {frame for claim in CLAIMS for frame in claim.frames} <= {*frames}
    assert all(name == each.name and each.minutes > 0 and each.sentence.endswith(".")
               for name, each in EXPERIMENTS.items())


def test_parameters_are_those_of_the_sidecars():
    import json
    for each in EXPERIMENTS.values():
        for frame in each.frames:
            if not (RESULTS / frame).exists() or not each.parameters:
                continue
            sidecar = RESULTS / (frame.partition(".")[0] + ".json")
            about = json.loads(sidecar.read_text())["parameters"]
            assert json.loads(json.dumps(each.parameters)) == {k: v for k, v in about.items() if k not in (
                "inputs", "data", "made by")}, each.name


def test_claims_are_decided_as_the_chapters_print_them():
    decided = claims_frame(CLAIMS, stored)
    assert len(decided) == len(CLAIMS) == 80
    counts = decided["status"].value_counts().to_dict()
    assert counts == {"reproduced": 46, "direction only": 27, "not reproduced": 3, "holds": 4}
    assert (decided["ours"] != "").all()


def test_a_claim_that_no_longer_holds_changes_its_status():
    evaluation = stored("pwr/evaluation_mean.csv.gz").copy()
    is_pwr = (evaluation["policy"] == "pwr-fgd:0.05") & (evaluation["trace"] == "default")
    evaluation.loc[is_pwr, "saving_percent"] *= 0.5
    claim = next(claim for claim in CLAIMS if claim.text == "savings exceed 13 % until about 80 %")
    assert claim.ours(stored("pwr/evaluation_mean.csv.gz"))[1] == "reproduced"
    assert claim.ours(evaluation)[1] == "not reproduced"


@pytest.mark.parametrize("name", ["savings_default", "grar_sharing", "eopc_fgd_default"])
def test_figures_are_drawn_from_stored_frames(name):
    asked = []

    def read(frame):
        asked.append(frame)
        return stored(frame)

    about = FIGURES[name](read).to_dict()
    assert asked == ["pwr/evaluation_mean.csv.gz"] and about["$schema"]
