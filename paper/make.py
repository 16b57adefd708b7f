"""Build the paper: read its numbers from the stored frames, draw its figures, set its pages.

python paper/make.py [--out DIR]     default _build/paper; needs sched_lab[paper]

A number that the text asks for and that cannot be read ends the build. Only a frame that the text
asks for by `later` may be absent: then its section says so, and so does this program.
"""
from __future__ import annotations

import argparse
import json
import re
import sys
from configparser import ConfigParser
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where studies/ is

import found  # noqa: E402

ROOT = found.ROOT
TEXT = ROOT / "paper" / "paper.typ"
TITLE = re.compile(r"- file: nbs/(\S+)\n\s+title: (.+)")
COMMENT = re.compile(r"(?m)(?<!:)//.*$")
CALL = re.compile(r'\b(n|ch|fig|later)\("([^"]+)"\)')


class BuildError(Exception):
    """The text asks for something that is not there."""


def chapters() -> dict[str, dict[str, str]]:
    """Where each chapter is, and how the book calls it: "Chapter 29 (Results)"."""
    settings = ConfigParser(delimiters=["="])
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    site = "".join(settings["DEFAULT"][key] for key in ("doc_host", "doc_baseurl"))
    return {stem: {"label": f"Chapter {stem.partition('_')[0]} ({title.strip()})", "url": f"{site}/nbs/{stem}.html"}
            for stem, title in TITLE.findall((ROOT / "_toc.yml").read_text(encoding="utf-8"))}


def calls(text: str) -> dict[str, list[str]]:
    """List what the text asks for, by kind: numbers, chapters, figures and sections that wait for a frame."""
    found_calls = CALL.findall(COMMENT.sub("", text))
    return {kind: list(dict.fromkeys(name for one, name in found_calls if one == kind))
            for kind in ("n", "ch", "fig", "later")}


def resolved(text: str) -> dict[str, object]:
    """All that the text asks for, as it is printed.

    Raises
    ------
    BuildError : a number, chapter or frame is not there; all of them are named
    """
    asked = calls(text)
    book = chapters()
    later = {frame: found.path_of(frame).is_file() for frame in asked["later"]}
    numbers = {}
    sources: dict[str, set[str]] = {}
    awaited = set()  # chapters that will show what waits for a frame
    troubles = []
    for name in asked["n"]:
        if name not in found.NUMBERS:
            troubles.append(f"{name}: there is no such number")
            continue
        chapter, frames, _ = found.NUMBERS[name]
        absent = [frame for frame in frames if not found.path_of(frame).is_file()]
        if absent and later.keys() >= {*absent}:
            awaited.add(chapter)
            continue
        try:
            numbers[name] = {"text": found.words_of(name), **book.get(chapter, {})}
            sources.setdefault(chapter, set()).update(frames)
        except found.MissingFrame as trouble:
            troubles.append(f"{name}: the frame {trouble} is not stored")
        except (KeyError, ValueError) as trouble:
            troubles.append(f"{name}: {trouble}")
    needed = {*asked["ch"], *sources}
    troubles += [f"there is no chapter {stem} in _toc.yml" for stem in sorted(needed - book.keys() - awaited)]
    if troubles:
        raise BuildError("\n".join(troubles))
    return {"numbers": numbers, "chapters": book, "later": later,
            "sources": [{**book[stem], "frames": sorted(sources[stem])} for stem in sorted(sources)]}


def build(out: Path) -> Path:
    """Write numbers, figures and the PDF; return its path."""
    import typst

    import figures

    text = TEXT.read_text(encoding="utf-8")
    values = resolved(text)
    out.mkdir(parents=True, exist_ok=True)
    for frame, is_there in values["later"].items():
        if not is_there:
            print(f"not stored yet: {frame}; its section says so")
    for name in calls(text)["fig"]:
        figures.draw(name, out / f"{name}.svg")
    (out / "values.json").write_text(json.dumps(values, ensure_ascii=False, indent=1), encoding="utf-8")
    inputs = {"out": "/" + out.resolve().relative_to(ROOT).as_posix()}
    typst.compile(TEXT, output=out / "paper.pdf", root=ROOT, sys_inputs=inputs, ignore_system_fonts=True)
    return out / "paper.pdf"


def main() -> int:
    """Build from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "_build" / "paper", help="a folder below the repository")
    try:
        path = build(parser.parse_args().out)
    except BuildError as trouble:
        print(f"the paper cannot be built:\n{trouble}", file=sys.stderr)
        return 1
    print(f"paper  file://{path.resolve()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
