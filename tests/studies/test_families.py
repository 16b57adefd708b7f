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
    "fleet": {"holds": 15, "fails": 5, "reproduced": 5, "direction only": 6, "not testable": 3},
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


@pytest.mark.parametrize(("name", "claim", "rows", "column", "factor", "before", "after"), [
    ("andreas", "scenario 1 ", "method == 'greedy'", "total_eur", 2, "direction only", "not reproduced"),
    ("far", "Table 4: $\\rho$", "quantity == 'rho'", "mean", 0.5, "reproduced", "not reproduced"),
    ("fleet", "mean completion times up to 3.4 times shorter than", "allocation == 'share'", "mean_jct_h", 0.5,
     "reproduced", "direction only"),
    ("hadar", "IV-B: TTD of Hadar below Gavel's", "scheduler.str.startswith('Hadar')", "ttd_h", 0.01,
     "not reproduced", "reproduced"),
    ("pwr", "savings exceed 13 % until about 80 %", "policy == 'pwr-fgd:0.05' and trace == 'default'", "saving_percent",
     0.5, "reproduced", "not reproduced")])
def test_a_claim_moves_with_the_frame_that_decides_it(name, claim, rows, column, factor, before, after):
    one = next(each for each in FAMILIES[name].CLAIMS if each.text.startswith(claim))
    frame, *others = map(stored, one.frames)
    moved = frame.assign(**{column: frame[column].where(~frame.eval(rows), factor * frame[column])})
    assert one.ours(frame, *others)[1] == before and one.ours(moved, *others)[1] == after


@pytest.mark.parametrize(("name", "figure"), DRAWN)
def test_figures_are_drawn_from_stored_frames(name, figure):
    asked = []
    chart = FAMILIES[name].FIGURES[figure](lambda path: asked.append(path) or stored(path)).to_dict()
    assert asked and (FIGURES / f"{figure}.svg").is_file() and "$schema" in chart
