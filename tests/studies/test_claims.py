"""A claim is a row: a sentence and a comparison of numbers that several rows share."""
import pandas as pd

from studies.claims import Each, Row, graded, section
from studies.reproduction import claims_frame

FRAME = pd.DataFrame({"watts": [1.0, 2.5, 4.0]})


def test_rows_of_a_section_share_one_measurement_of_the_same_frames():
    asked = []

    def measure(frame):
        asked.append(frame)
        return {"each": Each(frame["watts"]), "most": frame["watts"].max()}

    claims = section(measure, ("power.csv",),
                     Row("II", "it rises", "{each:.1f} W", lambda n: graded(sorted(n.each) == list(n.each))),
                     Row("II", "it stays below 4 W", "up to {most:.0f} W", lambda n: graded(n.most < 4, n.most < 5),
                         "{most:.0f} W is reached"))
    found = claims_frame(claims, lambda path: FRAME)
    assert found["ours"].tolist() == ["1.0, 2.5, 4.0 W", "up to 4 W"]
    assert found["status"].tolist() == ["reproduced", "direction only"]
    assert found["why"].tolist() == ["", "4 W is reached"]
    assert len(asked) == 1
    assert claims[1].ours(FRAME + 1) == ("up to 5 W", "not reproduced", "5 W is reached") and len(asked) == 2
