"""The first page: its numbers are those of stored frames, its minutes those of words."""
import html
import importlib
import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from sched_lab.lab.frames import read_frame
from studies.andreas import by_greedy, by_rg
from studies.hadar_theorems import check_theorem, refused_job

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "data" / "results"
INDEX = (ROOT / "index.md").read_text(encoding="utf-8")
FINDINGS = [" ".join(html.unescape(item).split())
            for item in re.findall(r"^- (\*\*.*?)(?=\n- |\n\n)", INDEX, flags=re.M | re.S)]


@pytest.fixture(scope="module")
def landing():
    """Import the extension that computes paths and map."""
    pytest.importorskip("sphinx_external_toc", reason="the book's requirements are not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "_ext"))
        yield importlib.import_module("book_landing")


@pytest.fixture(scope="module")
def apparatus(landing):
    """Import the extension that knows the words of chapters."""
    return importlib.import_module("book_apparatus")


# --- findings

def pwr_says() -> list[str]:
    saving = read_frame(RESULTS / "pwr/sensitivity.csv").query("trace == 'default' and x == 0.5")
    by_table = saving.query("policy == 'pwr'").set_index("watts")["saving_percent"]
    assert by_table["linear"] > by_table["paper"] / 2    # most
    return [f"{by_table['linear']:.1f} of its {by_table['paper']:.1f} %"]


def theorem_says() -> list[str]:
    printed = check_theorem(refused_job(4), "printed")
    mended = check_theorem(refused_job(4))
    assert not printed.bound_holds and mended.bound_holds
    return [f"may earn {printed.primal:g} where {printed.optimum:g} is possible", "a guarantee is left"]


def andreas_says() -> list[str]:
    saved = by_greedy(read_frame(RESULTS / "andreas/sweep.csv"))
    both = (saved.unstack("scenario") >= [62, 30]).all(axis=1) | (saved.unstack("scenario") >= [30, 62]).all(axis=1)
    assert not both.any()
    as_printed = by_rg(read_frame(RESULTS / "andreas/sweep.csv"), read_frame(RESULTS / "andreas/search.csv"))
    return ["with plain greedy", f"as printed saves {as_printed[1, '1.0']:.0f} and {as_printed[2, '1.0']:.0f} %",
            f"small nodes save {saved[1, '1.0']:.0f} %, large ones save {saved[2, '1.0']:.1f} %",
            f"large ones save {saved[2, '1.4']:.0f} %, small ones lose {-saved[1, '1.4']:.0f} %"]


def far_says() -> list[str]:
    proved = read_frame(RESULTS / "far/ratios.csv").query("model == 'A100' and num_gpus == 1")["proved_factor"]
    chapter = (ROOT / "nbs/55a_far_proofs.ipynb").read_text(encoding="utf-8")    # where it is computed
    assert set(proved) == {2} and "Ratio(far_s=2.0, optimum_s=1.000001)" in chapter
    assert "def tight_instance_a100" in chapter
    ours = read_frame(RESULTS / "far/single.csv").query("quantity == 'p_ref_percent' and num_tasks >= 20")["mean"]
    tables = pd.read_csv(ROOT / "data/paper/far_tables.csv")
    paper = tables.query("quantity == 'p_ref_percent' and num_tasks >= 20")["paper"]
    return ["While cutting is free", "twice the best time", "three tasks",
            f"at most {ours.max():.1f} % on large batches, not {paper.min():.1f} to {paper.max():.0f} %"]


def bounds_say() -> list[str]:
    policies = read_frame(RESULTS / "pwr/default_policies.csv").query("x == 0.5").set_index("policy")["eopc_w"]
    seeds = read_frame(RESULTS / "pwr/bounds_policies.csv")["seed"].unique()
    bounds = read_frame(RESULTS / "pwr/bounds.csv").query("trace == 'default' and method == 'patterns' and x == 0.5")
    least_w = bounds[bounds["seed"].isin(seeds)]["eopc_bound_w"].mean()
    above = 100 * (policies / least_w - 1)
    return [f"draws at most {above['pwr']:.1f} % more than the least that is possible, FGD {above['fgd']:.1f} %"]


SAYS = [pwr_says, theorem_says, andreas_says, far_says, bounds_say]


@pytest.mark.parametrize(("number", "says"), [*enumerate(SAYS)])
def test_a_finding_says_what_the_frames_say(number, says):
    assert [words for words in says() if words not in FINDINGS[number]] == []


def test_there_are_five_findings_and_each_leads_to_its_chapter():
    assert len(FINDINGS) == 5
    assert [found for found in FINDINGS if not re.search(r"\{doc\}`nbs/\d\d\w*`", found)] == []


# --- paths

def paths() -> dict[str, list[str]]:
    """Lines of each path, by whom it is for."""
    found = re.findall(r"\{grid-item-card\} (.*?)\n```\{path\}\n(.*?)```", INDEX, re.S)
    return {who: [line for line in lines.splitlines() if not line.startswith(":")] for who, lines in found}


def chapters_of(landing, who: str) -> list[str]:
    """Chapters of a path, in order; with `!` those of which only the opening is read."""
    return [name for _, stage in landing.stages(paths()[who]) for name in stage]


@pytest.mark.parametrize(("who", "least", "most"), [
    ("A manager", 5, 12), ("A cluster engineer", 15, 60), ("A student, for a term", 150, 600),
    ("A researcher", 60, 240)])
def test_a_path_takes_as_long_as_its_reader_has_and_skips_nothing_that_it_builds_on(landing, who, least, most):
    names = chapters_of(landing, who)
    assert len(names) == len(set(names)) > 3
    assert least <= landing.reading(ROOT, names).minutes <= most
    missing = {name: skipped for place, name in enumerate(names) if not name.endswith("!") and name != "index"
               if (skipped := landing.before(ROOT, name) - set(names[:place]))}
    assert missing == {}


def test_every_chapter_but_the_first_says_what_it_builds_on_and_that_comes_before_it(landing, apparatus):
    order = [notebook.stem for notebook in apparatus.chapters(ROOT)]
    for place, name in enumerate(order):
        direct = landing.builds_on(ROOT / "nbs" / f"{name}.ipynb")
        assert (direct != []) == (place > 0), name
        assert set(direct) <= set(order[:place]), name
        assert not any(one in landing.before(ROOT, other) for one in direct for other in direct), f"{name}: said twice"


PLAIN = frozenset({  # words that a chapter gives a meaning of its own, and that are also plain English
    *"""
    allocated allocation alternative application benefit bin bridge bucket bundle cap clash class clipped
    cluster configuration conservative content copy cost counters critical cut cycle drained dual easy
    events explains exploits feasible final free frontier full gap group history hole horizon ideal idle
    instance instances job kernel ledger life list maximal mechanism move oracle outlook partition
    parts penalty place placement places plan pool pressure problem profiles reserved result
    reversed round rule schedule scheduler score seen sleeps slice span specification split state
    steps terms type urgent watch work worth
    """.split(), "energy cost", "no interval", "training job", "whole GPUs"})


def test_a_word_is_introduced_before_it_is_used(landing, apparatus):
    """In the chapter itself, in one that it builds on, in the glossary, or in a chapter that it links to."""
    notebooks = apparatus.chapters(ROOT)
    known = {re.sub(r"[*`]", "", row["word"]) for row in apparatus.tables(apparatus.prose(notebooks[0]), "word")}
    homes = {}
    for notebook in notebooks:
        for word, _ in apparatus.introduced(notebook):
            homes.setdefault(word, set()).add(notebook.stem)
    assert len(homes.keys() - known - PLAIN) > 30
    assert PLAIN - homes.keys() == set(), "no longer needed"
    unknown = []
    for notebook in notebooks:
        text = apparatus.prose(notebook)
        linked = {one["page"] for one in apparatus.DOC.finditer(text)}
        sentences = landing.NOT_PROSE.sub(" ", re.sub(r"^\|.*|`[^`]*`", " ", text, flags=re.M))
        read = {notebook.stem} | linked | landing.before(ROOT, notebook.stem)
        for word in homes.keys() - known - PLAIN:
            if re.search(rf"\b{re.escape(word)}s?\b", sentences) and not homes[word] & read:
                unknown.append((notebook.stem, word, sorted(homes[word])))
    assert unknown == []


def test_words_are_those_that_are_read(landing):
    assert landing.count_words("Two words $$ x = y $$ and, 3.5 well-known ones: `x`.\n```sh\nnot these\n```") == 7
    whole, opening = (landing.reading(ROOT, [name]) for name in ("22_fgd", "22_fgd!"))
    assert 0 < opening.words < 250 < 1000 < whole.words and (opening.exercises, whole.exercises) == (0, 1)
    with pytest.raises(Exception, match="there is no chapter 22_fdg"):
        landing.reading(ROOT, ["22_fdg"])


def test_commands_are_those_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^sched-lab \S.*", INDEX, re.M)
    known = readme.splitlines()
    assert len(commands) >= 4
    assert [line for line in commands if not any(given.startswith(line) for given in known)] == []


# --- map

@pytest.fixture(scope="module")
def graph(landing):
    """Read the parts of the book, and count what builds on what between them."""
    parts = landing.parts_of(ROOT)
    return parts, landing.uses(ROOT, parts)


def test_the_map_has_every_chapter(landing, graph):
    parts, edges = graph
    for form in (landing.WIDE, landing.NARROW):
        drawn = landing.Map(form, lambda docname: docname).draw(parts, edges)
        linked = re.findall(r'<a href="nbs/(\w+)"', drawn)
        assert sorted(linked) == sorted(path.stem for path in (ROOT / "nbs").glob("[0-9]*.ipynb"))
        captions = re.findall(r'class="bold"[^>]*>(.*?)</text>', drawn)
        assert all(any(part.caption.endswith(html.unescape(said)) and said for said in captions) for part in parts)
    online, spine = (next(n for n, part in enumerate(parts) if word in part.caption) for word in ("Online", "spine"))
    assert edges[online, spine] >= 2 and not edges[spine, online]


def test_parts_stand_above_what_they_use(landing, graph):
    parts, edges = graph
    level = landing.levels(len(parts), edges)
    assert all(level[user] > level[used] for user, used in edges) and max(level) >= 2
    with pytest.raises(Exception, match="circle"):
        landing.levels(2, Counter({(0, 1): 1, (1, 0): 1}))


@pytest.mark.parametrize(("minutes", "said"), [(1, "1 minute"), (99, "99 minutes"), (150, "2.5 hours")])
def test_a_time_is_said_as_people_say_it(landing, minutes, said):
    assert landing.in_words(minutes) == said
