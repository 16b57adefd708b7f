"""What every family owes: an experiment for each stored frame, claims that frames decide, figures drawn from frames."""
import json
from pathlib import Path

import pytest

from sched_lab.lab.frames import input_key, read_sidecar
from studies import andreas, far, fleet, hadar, online
from studies.reproduction import claims_frame
from tests.studies.stored import RESULTS, stored

FIGURES = Path(__file__).parents[2] / "figures"
FAMILIES = {"andreas": andreas, "far": far, "fleet": fleet, "hadar": hadar, "pwr": online}
FOLDERS = {"pwr": ("pwr", "traces", "batch")}  # of the others that of the same name
DECIDED = {
    "andreas": {"reproduced": 5, "direction only": 5, "not reproduced": 3, "impossible": 1, "not testable": 3},
    "far": {"reproduced": 4, "direction only": 3, "not reproduced": 4, "impossible": 2, "not testable": 3},
    "fleet": {"holds": 14, "fails": 5, "reproduced": 3, "direction only": 5, "not testable": 1},
    "hadar": {"reproduced": 19, "direction only": 23, "not reproduced": 24, "impossible": 5, "not testable": 18},
    "pwr": {"reproduced": 46, "direction only": 27, "not reproduced": 3, "holds": 4}}
DRAWN = [("andreas", "andreas_totals"), ("far", "far_rho"), ("far", "far_plus"), ("hadar", "hadar_completions"),
         ("pwr", "savings_default"), ("pwr", "grar_sharing"), ("pwr", "eopc_fgd_default")]
each_family = pytest.mark.parametrize("name", FAMILIES)


@each_family
def test_every_stored_frame_has_one_experiment_and_says_what_it_depends_on(name):
    experiments = FAMILIES[name].EXPERIMENTS
    made = [path for one in experiments.values() for path in one.frames]
    there = {str(path.relative_to(RESULTS)) for folder in FOLDERS.get(name, (name,))
             for path in (RESULTS / folder).glob("*.csv*")}
    assert len(made) == len({*made}) and there <= {*made}
    for key, one in experiments.items():
        assert key == one.name and one.minutes > 0 and one.sentence
        for path in there & {*one.frames}:
            about = read_sidecar(RESULTS / path)
            assert json.loads(json.dumps(one.parameters)).items() <= about["parameters"].items(), path
            assert about["key"] == input_key(about["parameters"])


@each_family
def test_claims_are_decided_by_stored_frames_as_the_book_says(name):
    claims = FAMILIES[name].CLAIMS
    decided = claims_frame(claims, stored)
    assert decided["status"].value_counts().to_dict() == DECIDED[name]
    made = {path for one in FAMILIES[name].EXPERIMENTS.values() for path in one.frames}
    assert {path for claim in claims for path in claim.frames} <= made


@pytest.mark.parametrize(("name", "figure"), DRAWN)
def test_figures_are_drawn_from_stored_frames(name, figure):
    asked = []
    chart = FAMILIES[name].FIGURES[figure](lambda path: asked.append(path) or stored(path)).to_dict()
    assert asked and (FIGURES / f"{figure}.svg").is_file() and "$schema" in chart
