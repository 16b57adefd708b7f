"""The pictures of ideas: drawn from the examples of chapters, legible on a phone, described, and shown once."""
import importlib
import re
import sys

import pytest

from tests.book import CHAPTERS, ROOT, text_of

FILES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "figures").glob("*.svg")
         if ' class="picture" ' in path.read_text(encoding="utf-8")[:200]}
SHOWN = re.compile(r"!\[(.*?)\]\(\.\./figures/([\w-]+)\.svg\)")
PHONE = 328    # pixels that a phone of 360 leaves for a picture
NUMBERS = {"choose": ("34", "75", "109"), "scraps": ("6800", "8050"), "prices": ("0.0562", "5.62"),
           "hadar-round": ("0.994", "0.499", "0.438"), "columns": ("534.375", "573.75", "600"),
           "fork": ("400", "240 s"), "family": ("106", "110", "112", "114"), "mig-tree": ("19",),
           "repartition": ("16.12", "21.24", "28.33")}


def shown() -> list[tuple[str, str, str]]:
    """Return chapter, alternative text and name of each picture that a chapter shows."""
    return [(chapter.stem, alt, name) for chapter in CHAPTERS
            for alt, name in SHOWN.findall(text_of(chapter, "markdown"))]


@pytest.fixture(scope="module")
def drawn():
    """Draw all pictures anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        yield importlib.import_module("draw_pictures").files()
        for name in ("draw_pictures", "pen"):
            sys.modules.pop(name, None)


def test_the_stored_pictures_are_what_the_tool_draws(drawn):
    assert len(drawn) > 12
    assert [name for name, content in drawn.items() if (ROOT / name).read_text(encoding="utf-8") != content] == []
    assert {f"figures/{name}.svg" for name in FILES} == {name for name in drawn if name.endswith(".svg")}


def test_every_picture_is_shown_once_under_its_own_title():
    places = shown()
    assert sorted(name for _, _, name in places) == sorted(FILES)
    assert [name for _, alt, name in places if f">{alt}</title>" not in FILES[name]] == []


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_picture_is_described_and_legible(name):
    svg = FILES[name]
    described = re.search(r"<desc [^>]*>(.*?)</desc>", svg)
    assert described and len(described[1].split()) > 15
    assert f'aria-labelledby="{name}-title {name}-text"' in svg and svg.count(f'id="{name}-') == 2
    width = float(re.search(r'viewBox="0 0 (\d+)', svg)[1])
    sizes = [float(size) for size in re.findall(r"font(?:-size)?:\s*([\d.]+)px", svg)]
    assert sizes and min(sizes) * PHONE / width >= 11
    assert "prefers-color-scheme:dark" in svg and 'data-theme="dark"' in svg
    assert set(re.findall(r"var\(--(\w+)\)", svg)) <= set(re.findall(r"--(\w+):", svg))
    assert not re.search(r'(?:fill|stroke)="', svg)    # colours come from the palette alone


def light_of(colour: str) -> float:
    parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("palette", ["LIGHT", "DARK"])
def test_text_stands_out_from_every_ground(palette, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    colours = getattr(importlib.import_module("pen"), palette)
    grounds = [(ink, ground) for ink in ("ink", "soft") for ground in ("sheet", "pale", "sky", "glow", "mint")]
    for ink, ground in [("rose", "sheet"), *grounds]:
        low, high = sorted(light_of(colours[name]) for name in (ink, ground))
        assert (high + 0.05) / (low + 0.05) >= 4.5, f"{ink} on {ground}"


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers_are_those_of_the_chapter(name):
    (chapter,) = [stem for stem, _, shown_name in shown() if shown_name == name]
    text = (ROOT / "nbs" / f"{chapter}.ipynb").read_text(encoding="utf-8")    # with its outputs
    assert [number for number in NUMBERS[name] if number not in text or number not in FILES[name]] == []
