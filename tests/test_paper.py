"""The short paper prints what stored frames say: every number resolves, and no result is typed."""
import re
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "paper"))
import found  # noqa: E402
import make  # noqa: E402

TEXT = make.TEXT.read_text(encoding="utf-8")
BODY = TEXT[TEXT.index("*Abstract.*"):TEXT.index("#bibliography(")]
CALLS = re.compile(r'#?\b(?:n|ch|fig|later|to-come)\("[^"]*"\)')
LAYOUT = re.compile(r"(?m)^#set .*$|^#show .*$|\b(?:columns|align|placement|stroke|inset|width):[^\n]*|table\.hline.*$")
NAMES = re.compile(r"\b[A-Z]\d{1,3}s?\b|\bTheorem \d\b|\b95 % interval\b")  # A10, V100, A30s; what intervals are
NUMBER_WORD = re.compile(r"\b(?:zero|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fifteen|twenty"
                         r"|thirty|forty|fifty|sixty|hundreds?|half|third|quarter|twice|double)\b", re.I)
PHRASES = re.compile(r"half load|half of the way|(?:more than )?ten tasks|third phase|#w\[\w+\]", re.I)


def prose(text):
    """Take out numbers that are read, formulas, names and layout; what is left was typed."""
    others = re.compile(r"\$[^$]*\$|@[\w-]+|<[\w-]+>")
    for pattern in (make.COMMENT, CALLS, others, LAYOUT, NAMES, PHRASES):
        text = pattern.sub(" ", text)
    return text


def typed(text):
    """Digits and number words in the prose of a text."""
    left = prose(text)
    return re.findall(r"\S*\d\S*", left) + NUMBER_WORD.findall(left)


@pytest.fixture(scope="module")
def values():
    return make.resolved(TEXT)


def test_every_number_of_the_text_resolves(values):
    asked = make.calls(TEXT)["n"]
    awaited = {name for name in asked
               if not all(found.path_of(frame).is_file() for frame in found.NUMBERS[name].frames)}
    missing = {frame for name in awaited for frame in found.NUMBERS[name].frames if not found.path_of(frame).is_file()}
    assert missing <= set(make.calls(TEXT)["later"]) and len(asked) > 100
    assert set(values["numbers"]) == {*asked} - awaited
    for entry in values["numbers"].values():
        assert entry["text"].strip() and entry["url"].startswith("https://") and entry["label"].startswith("Chapter ")


def test_no_result_is_typed():
    assert typed(BODY) == []
    for lie in ("It saves 13.5 % of it.", "It saves a third.", "On nine of the traces.", "a gap of 1.7", "by .95"):
        assert typed(BODY.replace("*What reproduces.*", f"*What reproduces.* {lie}", 1)), lie


def test_every_number_of_the_table_is_printed():
    assert {*found.NUMBERS} == {*make.calls(TEXT)["n"]}


def test_each_section_names_the_chapters_of_its_numbers():
    for section in re.split(r"(?m)^= ", BODY)[1:]:
        asked = make.calls(section)
        used = {found.NUMBERS[name].chapter for name in asked["n"]}
        assert used <= {*asked["ch"]}, section.partition("\n")[0]


def test_a_semicolon_after_a_number_is_printed():
    assert not re.search(r'#(?:n|ch)\("[^"]*"\);', TEXT)  # Typst would take it for its own


def test_what_is_missing_ends_the_build(monkeypatch, tmp_path):
    with pytest.raises(make.BuildError, match="no such number"):
        make.resolved('#n("pwr.unheard")')
    with pytest.raises(make.BuildError, match="no chapter 29z_nowhere"):
        make.resolved('#ch("29z_nowhere")')
    monkeypatch.setattr(found, "RESULTS", tmp_path)
    found.read.cache_clear()
    try:
        with pytest.raises(make.BuildError, match="the frame far/distance.csv is not stored"):
            make.resolved('#n("far.ten-above")')
        waiting = make.resolved('#later("far/distance.csv") #n("far.ten-above")')
    finally:
        found.read.cache_clear()
    assert waiting["later"] == {"far/distance.csv": False} and not waiting["numbers"]


def test_a_number_without_value_is_refused(monkeypatch):
    monkeypatch.setitem(found.NUMBERS, "void", found.Number("28_bounds", (), lambda: found.percent(float("nan"))))
    with pytest.raises(make.BuildError, match="void has no value"):
        make.resolved('#n("void")')


def test_frames_at_equal_service_give_their_numbers(monkeypatch):
    def runs(policy, served, power_w):
        rows = product(("default", "gpuspec33"), (47, 48), zip((0.0, 0.5, 1.0), served, power_w, strict=True))
        return [{"trace": trace, "policy": policy, "seed": seed, "x": x, "eopc_w": eopc_w, "arrived_gpu_milli": 1000,
                 "used_gpu_milli": used} for trace, seed, (x, used, eopc_w) in rows]

    # chapter 29d by hand: 8 of 10 GPUs with 200 W, where FGD serves 9 with 230 W and had served 8 with 210
    frames = {found.EQUAL: pd.DataFrame(runs("fgd", (500, 900, 900), (150, 230, 230))
                                        + runs("pwr-fgd:0.2", (400, 800, 800), (130, 200, 200))),
              found.FAMILY: pd.DataFrame(runs(found.BID, (500, 900, 950), (140, 207, 230)))}
    monkeypatch.setattr(found, "read", frames.__getitem__)
    shown = {name: found.words_of(name) for name in (
        "equal.seeds", "equal.arrived", "equal.served", "bid.points-default", "bid.within-gpuspec33", "bid.traces",
        "bid.saved")}
    assert {name: text.replace("\N{NO-BREAK SPACE}", " ") for name, text in shown.items()} == {
        "equal.seeds": "2", "equal.arrived": "13.0 %", "equal.served": "4.8 %", "bid.points-default": "5.00",
        "bid.within-gpuspec33": "0.00", "bid.traces": "2", "bid.saved": "10.0 %"}


@pytest.mark.parametrize("value, text", [(13.456, "13.5"), (-0.04, "0.0"), (-1.25, "\N{MINUS SIGN}1.2"),
                                         (1234.5, "1\N{THIN SPACE}234.5")])
def test_numbers_are_written_alike(value, text):
    assert found.fixed(value) == text


def test_the_paper_can_be_set():
    typst = pytest.importorskip("typst", reason="the extra paper is not installed")
    out = ROOT / "_build" / "paper-test"
    path = make.build(out)
    assert path.read_bytes().startswith(b"%PDF")
    pages = typst.compile(make.TEXT, root=ROOT, sys_inputs={"out": "/_build/paper-test"}, format="svg",
                          ignore_system_fonts=True)
    assert 3 <= len(pages) <= 8
