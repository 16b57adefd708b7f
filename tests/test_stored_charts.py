"""Every chart that the chapters store: its title states a finding, a policy has its colour, an order is kept."""
import re

from sched_lab.lab.plots import PALETTE, _title_of, _units, _values, fixed_colour
from tests.book import CHAPTERS, charts_of

PANELS = ("hconcat", "vconcat", "concat", "layer")
COLOURED = ("color", "fill", "stroke")
PLACED = ("x", "y", "xOffset", "yOffset", "column", "row", "facet")


CHARTS = {f"{chapter.stem}:{cell}:{number}": spec for chapter in CHAPTERS
          for number, (cell, spec) in enumerate(charts_of(chapter))}


def found_in_charts(faults_of):
    """Return what a check finds, by chart; there are charts for it to look at."""
    assert len(CHARTS) > 120
    return {place: faults for place, spec in CHARTS.items() if (faults := faults_of(spec))}


# --- titles

def text_of(title):
    """Text of a title, "" if there is none."""
    text = title.get("text", "") if isinstance(title, dict) else title or ""
    return " ".join(text) if isinstance(text, list) else text


def titles_of(spec):
    """List the titles of a chart: its own, or that of a layer; else those of all its panels, None where it lacks."""
    own = text_of(spec.get("title"))
    if own:
        return [own]
    if layers := spec.get("layer"):
        return next(([title] for layer in layers if (title := text_of(layer.get("title")))), [None])
    parts = [part for way in PANELS[:3] for part in spec.get(way, [])]
    return [title for part in parts for title in titles_of(part)] if parts else [None]


def axes_of(spec):
    """Titles of the axes and panels."""
    found = {_title_of(channel) for unit in _units(spec, spec.get("datasets", {}))
             for name, channel in unit.encoding.items() if name in PLACED and isinstance(channel, dict)}
    return {title for title in found if title}


def says_little(title, axes):
    """Whether a title is a label: missing, of one or two words, or what an axis says already."""
    if not title or title in axes:
        return True
    return len(title.split()) < 3 and not re.search(r"\d", title)


def test_the_title_states_a_finding():
    assert found_in_charts(
        lambda spec: [title for title in titles_of(spec) if says_little(title, axes_of(spec))]) == {}
    up = {"mark": "line", "encoding": {"y": {"field": "kW", "title": "power of the cluster"}}}
    for title in (None, "Power", "power of the cluster"):
        assert says_little(titles_of(up | {"title": title})[0], axes_of(up))


# --- colours

def colours_of(unit, channel):
    """Colour of each label of a channel as it is drawn."""
    encoding = unit.encoding.get(channel)
    if not isinstance(encoding, dict) or "field" not in encoding or encoding.get("type") not in ("nominal", "ordinal"):
        return {}
    scale = encoding.get("scale") or {}
    labels = scale.get("domain") or drawn_order(encoding, _values(unit, channel))
    colours = scale.get("range") or list(PALETTE)
    return {str(label): colours[number % len(colours)] for number, label in enumerate(labels)} if isinstance(
        colours, list | tuple) else {}


def wrong_colours(spec):
    """Policies and bounds that are drawn in another colour than everywhere: label, colour, and the right one."""
    drawn = {(label, colour.lower()) for unit in _units(spec, spec.get("datasets", {})) for channel in COLOURED
             for label, colour in colours_of(unit, channel).items()}
    return sorted((label, colour, right) for label, colour in drawn
                  if (right := (fixed_colour(label) or colour).lower()) != colour)


def test_a_policy_has_its_colour():
    assert found_in_charts(wrong_colours) == {}
    assert sum(len(colours_of(unit, "color")) for spec in CHARTS.values()
               for unit in _units(spec, spec.get("datasets", {}))) > 400
    lines = {"mark": "line", "encoding": {"color": {"field": "p", "type": "nominal"}}}
    data = {"values": [{"p": "joint"}]}
    assert wrong_colours({"hconcat": [lines | {"data": data}]}) == [("joint", "#0072b2", "#7a2a0e")]


# --- order

NUMBER = re.compile(r"(?<![A-Za-z\d.])-?\d+(?:\.\d+)?")  # of a scale, not of a name: 1.5, M-3, 12 h, not J6


def drawn_order(encoding, values):
    """Labels of a discrete channel in the order in which they are drawn."""
    seen = list(dict.fromkeys(value for value in values if value is not None))
    if domain := (encoding.get("scale") or {}).get("domain"):
        return domain
    sort = encoding.get("sort", "ascending")
    if isinstance(sort, list):
        return [*sort, *(value for value in seen if value not in sort)]
    if sort is None or isinstance(sort, dict) or sort.lstrip("-") in ("x", "y"):
        return seen
    return sorted(seen, key=lambda value: (isinstance(value, str), value), reverse=sort == "descending")


def is_out_of_order(labels):
    """Whether labels that differ in one number neither rise nor fall."""
    texts = [str(label) for label in labels]
    numbers = [NUMBER.findall(text) for text in texts]
    if len(texts) < 3 or len({NUMBER.sub("#", text) for text in texts}) > 1 or {len(found) for found in numbers} != {1}:
        return False
    values = [float(found[0]) for found in numbers]
    return values not in (sorted(values), sorted(values, reverse=True))


def out_of_order(spec):
    """Discrete axes and panels whose labels are numbers, and not in their order."""
    return sorted({(channel, str(order)) for unit in _units(spec, spec.get("datasets", {})) for channel in PLACED
                   if isinstance(encoding := unit.encoding.get(channel), dict) and "field" in encoding
                   and encoding.get("type") in ("nominal", "ordinal")
                   and is_out_of_order(order := drawn_order(encoding, _values(unit, channel)))})


def test_what_has_an_order_is_in_it():
    assert found_in_charts(out_of_order) == {}
    across = {"field": "share", "type": "ordinal", "sort": None}
    bars = {"mark": "bar", "encoding": {"x": across}, "data": {"values": [{"share": one} for one in (0.0, 1.0, 0.5)]}}
    assert out_of_order(bars) == [("x", "[0.0, 1.0, 0.5]")]


