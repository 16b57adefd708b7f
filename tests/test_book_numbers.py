"""A number in a sentence of a results chapter is one that its cells print, rounded as the sentence says it."""
import re
import sys
from bisect import bisect_left

import pytest

from tests.book import ROOT

RESULTS = """24e_stay 29_pwr_results 29a_pwr_traces 29d_equal_service 39_andreas_results 49_hadar_results 59_far_results
             69_fleet_experiments 70_fleet_day 71_robustness 72_others""".split()
SENTENCE = re.compile(r"(?<![\w.,^_{-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w^_}])")
OUTPUT = re.compile(r"\d+(?:,\d{3})*\.?\d*(?:e-?\d+)?")
NO_SENTENCE = re.compile(r"(`{3,}|\$\$).*?\1|<[^>]+>|\{[\w:]+\}`[^`]*`|https?://\S+|`[^`]*`|\$[^$]*\$", re.S)
SMALL = 12  # whole numbers up to here are as often words as results
GIVEN = {  # numbers that no cell of the chapter prints, by where they come from
    "24e_stay": {"year of traces": "2021", "nodes of openb": "1,213",
                 "the example by hand": "31"},
    "29a_pwr_traces": {"points of the chart, by hand": "0.96746 0.89643 7.34 901.4 230.1",
                       "the tolerance of a claim": "0.005", "GPUs of openb of unknown model": "71"},
    "29d_equal_service": {"nodes of openb": "1,213"},
    "49_hadar_results": {"the paper's": "1.20 2.76 1.21 1.79 2.12"},
    "59_far_results": {"batches of a chain": "1001", "above all standard errors": "0.005"},
    "69_fleet_experiments": {"days of openb": "149", "every eighth node": "152 770",
                             "other orders of the nodes": "1.3"},
    "70_fleet_day": {"services and jobs of a day": "390 160", "hours of a day and its rest": "72",
                     "level of confidence": "95", "the paper's": "1.6"},
    "71_robustness": {"jobs of the paper": "480", "level of confidence": "95"}}


@pytest.fixture(scope="module")
def apparatus():
    """Import the extension that reads chapters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "_ext"))
        yield pytest.importorskip("book_apparatus", reason="the book's requirements are not installed")
    sys.modules.pop("book_apparatus", None)


def said(text):
    """Numbers in the sentences of a page, as they stand there: no tables, headings, formulas and code."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith(("|", "#", ":")))
    found = SENTENCE.findall(NO_SENTENCE.sub(" ", lines))
    return [number for number in found if "." in number or float(number.replace(",", "")) > SMALL]


def computed(cells):
    """Numbers in the code of a page, and in what it prints; charts hold too many to say anything."""
    texts = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    for output in (output for cell in cells for output in cell.get("outputs", [])):
        texts += ["".join(output.get("text", [])), "".join(output.get("data", {}).get("text/plain", []))]
    return sorted(float(number.replace(",", "")) for number in OUTPUT.findall("\n".join(texts)))


def is_among(number, values):
    """Whether one of some values in order rounds to a number, or to so many percent."""
    value = float(number.replace(",", ""))
    half = 0.5 * 10.0 ** -len(number.partition(".")[2]) * (1 + 1e-9)
    places = ((bisect_left(values, (value - half) / scale), (value + half) / scale) for scale in (1, 100))
    return any(place < len(values) and values[place] <= most for place, most in places)


@pytest.mark.parametrize("name", RESULTS)
def test_a_number_in_a_sentence_is_one_that_a_cell_prints(apparatus, name):
    notebook = ROOT / "nbs" / f"{name}.ipynb"
    values = computed(apparatus.cells(notebook))
    numbers = said(apparatus.prose(notebook))
    given = {number for some in GIVEN.get(name, {}).values() for number in some.split()}
    unknown = [number for number in numbers if not is_among(number, values)]
    assert len(numbers) > 3 and set(unknown) - given == set()
    assert given - set(unknown) == set(), "no longer needed"


def test_a_number_is_known_by_the_digits_that_are_said():
    text = "Of 1,213 nodes 5.1 % sleep, `17`, and $18$\n| 99 |\n### 77\n in 3 of 40."
    assert said(text) == ["1,213", "5.1", "40"]
    values = computed([{"cell_type": "code", "source": "draw(40)", "outputs": [{"text": ["0.0512 of 1213"]}]}])
    assert [is_among(number, values) for number in ("1,213", "5.1", "5.2", "40", "41", "0.05")] == [
        True, True, False, True, False, True]
