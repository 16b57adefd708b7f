"""A pen for the pictures of the book: one width, one palette, one size of text, light and dark.

A picture is 340 units wide, so that its text of 13 units has at least 11 pixels on a phone of 360.
"""
from __future__ import annotations

import math
from html import escape

WIDTH = 340
SIZE = 13
LIGHT = {"ink": "#1c2733", "soft": "#55636f", "line": "#8496a7", "sheet": "#ffffff", "pale": "#eff3f8",
         "blue": "#1f5fa8", "sky": "#cfe0f2", "warm": "#a85a00", "glow": "#fce3bf", "leaf": "#2a7340",
         "mint": "#d5ecd9", "rose": "#b3261e"}
DARK = {"ink": "#e6edf3", "soft": "#aab6c2", "line": "#7b8896", "sheet": "#14181e", "pale": "#232b35",
        "blue": "#7fb2ec", "sky": "#25425f", "warm": "#f0ab5f", "glow": "#523816", "leaf": "#7fcf92",
        "mint": "#1f4029", "rose": "#ff9088"}
FILLS = {"pale": ("pale", "line"), "sky": ("sky", "blue"), "glow": ("glow", "warm"), "mint": ("mint", "leaf"),
         "sheet": ("sheet", "line"), "none": (None, "line")}


def variables(palette: dict[str, str]) -> str:
    """Return a palette as CSS variables."""
    return ";".join(f"--{name}:{colour}" for name, colour in palette.items())


def style() -> str:
    """Return the rules that all pictures share; they hold inside a page of the book and in a file of their own."""
    fills = [f".picture .{name}{{fill:{f'var(--{fill})' if fill else 'none'};stroke:var(--{stroke})}}"
             for name, (fill, stroke) in FILLS.items()]
    inks = [f".picture .{name}-ink{{fill:var(--{name});stroke:none}}" for name in LIGHT]
    lines = [f".picture .{name}-line{{fill:none;stroke:var(--{name})}}" for name in LIGHT]
    return "".join([
        f".picture{{{variables(LIGHT)};font:{SIZE}px system-ui,-apple-system,'Segoe UI',sans-serif}}",
        f"@media (prefers-color-scheme:dark){{.picture{{{variables(DARK)}}}}}",
        f'html[data-theme="light"] .picture{{{variables(LIGHT)}}}',
        f'html[data-theme="dark"] .picture{{{variables(DARK)}}}',
        ".picture text{fill:var(--ink);stroke:none}.picture .bold{font-weight:650}",
        ".picture .dash{stroke-dasharray:4 3}", *fills, *inks, *lines])


def rounded(value: float) -> str:
    """Return a coordinate with as few digits as needed."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Picture:
    """A drawing under way: what it is called, what it shows, and its marks from back to front."""

    def __init__(self, name: str, height: float, title: str, text: str) -> None:
        self.name = name
        self.height = height
        self.title = title
        self.text = text
        self.marks: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, look: str = "pale", radius: float = 5) -> None:
        """Draw a rectangle."""
        where = " ".join(f'{key}="{rounded(value)}"' for key, value in
                         (("x", x), ("y", y), ("width", width), ("height", height), ("rx", radius)))
        self.marks.append(f'<rect class="{look}" {where}/>')

    def write(self, x: float, y: float, words: str, look: str = "", anchor: str = "middle") -> None:
        """Write a line of text on the base line y."""
        named = f' class="{look}"' if look else ""
        turned = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.marks.append(f'<text x="{rounded(x)}" y="{rounded(y)}"{named}{turned}>{escape(words, quote=False)}</text>')

    def lines(self, x: float, y: float, words: list[str], look: str = "", anchor: str = "middle") -> None:
        """Write several lines, the first on the base line y."""
        for row, line in enumerate(words):
            self.write(x, y + 16 * row, line, look, anchor)

    def path(self, points: list[tuple[float, float]], look: str = "line-line", width: float = 1.5) -> None:
        """Draw straight lines from point to point."""
        where = "M" + "L".join(f"{rounded(x)} {rounded(y)}" for x, y in points)
        self.marks.append(f'<path class="{look}" stroke-width="{rounded(width)}" d="{where}"/>')

    def arrow(self, *points: tuple[float, float], look: str = "soft") -> None:
        """Draw straight lines with a head at the last point."""
        (x0, y0), (x, y) = points[-2:]
        angle = math.atan2(y - y0, x - x0)
        back = [(x - 8 * math.cos(angle + turn), y - 8 * math.sin(angle + turn)) for turn in (-0.45, 0.45)]
        stop = (x - 6 * math.cos(angle), y - 6 * math.sin(angle))
        self.path([*points[:-1], stop], f"{look}-line")
        head = "L".join(f"{rounded(a)} {rounded(b)}" for a, b in [(x, y), *back])
        self.marks.append(f'<path class="{look}-ink" d="M{head}z"/>')

    def dot(self, x: float, y: float, radius: float = 4, look: str = "blue-ink") -> None:
        """Draw a dot."""
        self.marks.append(f'<circle class="{look}" cx="{rounded(x)}" cy="{rounded(y)}" r="{rounded(radius)}"/>')

    def cross(self, x: float, y: float, reach: float = 5) -> None:
        """Draw a cross."""
        for turn in (1, -1):
            self.path([(x - reach, y - turn * reach), (x + reach, y + turn * reach)], "rose-line", 2)

    def card(self, x: float, y: float, width: float, words: list[str], look: str = "pale") -> float:
        """Draw a box with lines of text, the first one bold; return its lower edge."""
        height = 16 * len(words) + 12
        self.box(x, y, width, height, look)
        for row, line in enumerate(words):
            self.write(x + width / 2, y + 19 + 16 * row, line, "" if row else "bold")
        return y + height

    def svg(self) -> str:
        """Return the picture as a file."""
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {WIDTH} {rounded(self.height)}" '
                f'width="{WIDTH * 1.4:.0f}" height="{self.height * 1.4:.0f}" role="img" '
                f'aria-labelledby="{self.name}-title {self.name}-text">')
        about = (f'<title id="{self.name}-title">{escape(self.title, quote=False)}</title>\n'
                 f'<desc id="{self.name}-text">{escape(self.text, quote=False)}</desc>')
        return "\n".join([head, about, f"<style>{style()}</style>", *self.marks, "</svg>\n"])
