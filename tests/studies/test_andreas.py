"""Experiments of ANDREAS: what they compute is what is stored."""
import pandas as pd
import pytest

from studies.andreas import CELLS, EXPERIMENTS, cells, costs
from studies.reproduction import Workplace
from tests.studies.stored import stored


@pytest.mark.parametrize(("name", "cell"), [
    ("sweep", {"num_nodes": 10, "scenario": 1, "factor": "0.6"}),
    ("unseen", {"num_nodes": 10, "scenario": 2, "factor": "1.3"})])
def test_a_cell_computed_now_is_what_is_stored(name, cell):
    whole = next(each for each in CELLS[name] if cell.items() <= each.items())
    seed = whole["seeds"].split()[0]
    now = costs(**(whole | {"seeds": seed})).drop(columns="decision_ms").round(6)
    then = stored(f"andreas/{name}.csv").query(f"seed == {seed}")
    for key, value in cell.items():
        then = then[then[key] == value]
    columns = [column for column in now if column != "method"]
    both = (frame.set_index("method")[columns].sort_index() for frame in (now, then))
    pd.testing.assert_frame_equal(*both, check_exact=True)


def test_frames_are_those_that_an_experiment_promises(tmp_path, monkeypatch):
    few = {name: cells([2], [1000], ["edf", "greedy", "rg"])[:1] for name in EXPERIMENTS}
    monkeypatch.setattr("studies.andreas.CELLS", few)
    for one in EXPERIMENTS.values():
        made = one.compute(Workplace(tmp_path / one.name))
        assert sorted(made) == sorted(one.frames)
        for path, frame in made.items():
            assert list(frame) == list(stored(path)) and len(frame) == 3
