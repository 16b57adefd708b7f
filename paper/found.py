"""Every number that the paper prints: the chapter it is from, the stored frames it is read from, how it is written.

`paper.typ` calls a number by its name, `#n("pwr.half")`. Nothing here is typed: a function gets the frames and
returns the words. Numbers of the four papers are read too, from the files that the results chapters compare with.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sched_lab.fleet.ask.day_run import ALL, PLAIN, effects_of
from sched_lab.lab.frames import read_frame, read_sidecar
from studies.andreas import CLAIMS as ANDREAS_CLAIMS
from studies.andreas import by_greedy, by_method, by_rg, reduction_percent
from studies.far import before_phase_3, beside, of_single_batches
from studies.headlines import example_cluster
from studies.online import excess_percent
from studies.pwr_traces import CLAIMS as TRACE_CLAIMS
from studies.reproduction import Claim, claims_frame

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"paper": ROOT / "data", "embedded": ROOT / "data"}
RESULTS = ROOT / "data" / "results"
DASH = "\N{WORD JOINER}\N{EN DASH}\N{WORD JOINER}"
MINUS = "\N{MINUS SIGN}"
SPACE = "\N{NO-BREAK SPACE}"

EVALUATION, POWER = "pwr/evaluation_mean.csv.gz", "pwr/default_cluster_power.csv"
SENSITIVITY, BEYOND, POLICIES = "pwr/sensitivity.csv", "pwr/beyond_mean.csv", "pwr/default_policies.csv"
EQUAL, FAMILY, PARTS = "pwr/equal_service.csv.gz", "pwr/bid_family.csv.gz", "pwr/equal_service_bounds.csv"
BOUNDS, ABOVE = "pwr/bounds.csv", "pwr/bounds_policies.csv"
SWEEP, SEARCH, UNSEEN = (f"andreas/{name}.csv" for name in ("sweep", "search", "unseen"))
TRACE, ENERGY, NODES = (f"hadar/{name}.csv" for name in ("trace", "energy", "nodes"))
THEIRS_ANDREAS, THEIRS_FAR = "paper/andreas.csv", "paper/far_tables.csv"
THEIRS_HADAR = "embedded/paper/hadar.csv"
SINGLE, CHAINS, RATIOS, DISTANCE, PLUS = (
    f"far/{name}.csv" for name in ("single", "chains", "ratios", "distance", "plus"))
MONTH, DAY = "fleet/month.csv", "fleet/day.csv"
WRONG_MIX, WRONG_JOBS, WRONG_TABLE = (f"fleet/robust_{name}.csv" for name in ("placing", "hadar", "far"))
MIXES = ["pwr-fgd:0.05", "pwr-fgd:0.1", "pwr-fgd:0.2", "pwr-fgd:0.5"]
LIGHT, HALF, HIGH = 0.2, 0.5, 0.8


class Number(NamedTuple):
    """One number of the paper.

    Parameters
    ----------
    chapter : file of the chapter that shows it, without folder and ending
    frames : files it is read from, below data/results (or `paper/...`, `embedded/...` below data)
    words : called with these frames
    """

    chapter: str
    frames: tuple[str, ...]
    words: Callable[..., str]


NUMBERS: dict[str, Number] = {}


class MissingFrame(Exception):
    """A frame that a number is read from is not stored."""


def path_of(frame: str) -> Path:
    """Where a frame is."""
    return FOLDERS.get(frame.partition("/")[0], RESULTS) / frame


@cache
def read(frame: str) -> pd.DataFrame:
    """Frame by its path below data/results; theirs are plain tables without a sidecar."""
    path = path_of(frame)
    if not path.is_file():
        raise MissingFrame(frame)
    return pd.read_csv(path) if frame.partition("/")[0] in FOLDERS else read_frame(path)


def number(name: str, chapter: str, *frames: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Enter a function of frames as a number of the paper."""
    def enter(words: Callable[..., str]) -> Callable[..., str]:
        if name in NUMBERS:
            raise ValueError(f"two numbers are called {name}")
        NUMBERS[name] = Number(chapter, frames, words)
        return words
    return enter


def words_of(name: str) -> str:
    """Print a number of the table."""
    entry = NUMBERS[name]
    text = entry.words(*map(read, entry.frames))
    if not text or "nan" in text.lower():
        raise ValueError(f"{name} has no value: {text!r}")
    return text


# --- how numbers are written

def fixed(value: float, digits: int = 1, unit: str = "") -> str:
    """Write a number with so many digits, a real minus sign, and its unit."""
    text = f"{round(value, digits) + 0.0:,.{digits}f}".replace(",", "\N{THIN SPACE}").replace("-", MINUS)
    return f"{text}{SPACE}{unit}" if unit else text


def percent(value: float, digits: int = 1) -> str:
    """Per cent."""
    return fixed(value, digits, "%")


def span(values: Any, digits: int = 1, unit: str = "") -> str:
    """Smallest to largest."""
    low, high = (fixed(end, digits) for end in (np.min(values), np.max(values)))
    between = " to " if MINUS in low else DASH
    return (low if low == high else f"{low}{between}{high}") + (f"{SPACE}{unit}" if unit else "")


def worded(count: int) -> str:
    """Write a small count as a word."""
    words = "none one two three four five six seven eight nine ten eleven twelve".split()
    return words[count] if count < len(words) else str(count)


# --- PWR and FGD (chapters 24a, 28, 29, 29a, 69)

def at(frame: pd.DataFrame, policy: str, x: float, column: str, trace: str = "default") -> float:
    """One cell of an evaluation."""
    row = frame.query("trace == @trace and policy == @policy and x == @x")
    return float(row[column].iloc[0])


number("pwr.half-mixes", "29_pwr_results", EVALUATION)(
    lambda e: span([at(e, mix, HALF, "saving_percent") for mix in MIXES[:3]], 1, "%"))
number("pwr.seed-sd", "29_pwr_results", EVALUATION)(
    lambda e: fixed(at(e, "pwr-fgd:0.1", HALF, "saving_sd")))
number("pwr.grar-fgd", "29_pwr_results", EVALUATION)(lambda e: fixed(at(e, "fgd", 1, "grar"), 3))
number("pwr.grar-mix", "29_pwr_results", EVALUATION)(
    lambda e: fixed(max(at(e, mix, 1, "grar") for mix in MIXES[:3]), 3))
number("pwr.grar-pwr", "29_pwr_results", EVALUATION)(lambda e: fixed(at(e, "pwr", 1, "grar"), 3))
number("pwr.traces", "29a_pwr_traces", EVALUATION)(lambda e: str(e["trace"].nunique()))
number("pwr.seeds", "29_pwr_results", EVALUATION)(
    lambda e: worded(len(read_sidecar(path_of(EVALUATION))["parameters"]["seeds"])))
number("pwr.model-share", "29a_pwr_traces", SENSITIVITY)(lambda s: percent(
    100 * of_watts(s, "linear", HALF) / of_watts(s, "paper", HALF), 0))
number("pwr.linear", "29a_pwr_traces", SENSITIVITY)(lambda s: percent(of_watts(s, "linear", HALF)))
number("pwr.step", "29a_pwr_traces", SENSITIVITY)(lambda s: percent(of_watts(s, "paper", HALF)))
number("pwr.g2-t4", "29a_pwr_traces", SENSITIVITY)(lambda s: percent(of_watts(s, "G2 is like a T4", HALF)))
number("pwr.g2-v100", "29a_pwr_traces", SENSITIVITY)(lambda s: percent(of_watts(s, "G2 is like a V100", HALF)))
number("pwr.g2-v100-high", "29a_pwr_traces", SENSITIVITY)(
    lambda s: percent(of_watts(s, "G2 is like a V100", HIGH)))


def of_watts(sensitivity: pd.DataFrame, watts: str, x: float) -> float:
    """Look up the saving of the mix at 0.1 on Default under one table of watts."""
    return at(sensitivity.query("watts == @watts"), "pwr-fgd:0.1", x, "saving_percent")


@number("pwr.refused", "29a_pwr_traces", EVALUATION, POWER)
def _(evaluation: pd.DataFrame, power: pd.DataFrame) -> str:
    claim = next(one for one in TRACE_CLAIMS if one.text.endswith("which accounts for their larger savings"))
    ours = claim.ours(evaluation, power)[0]  # at half load 84, 68 % of them remain, refused work charged
    kept = ours.removeprefix("at half load ").partition(" %")[0]
    return f"{kept.replace(', ', ' and ')}{SPACE}%"


number("pwr.bound-grar", "28_bounds", BOUNDS)(lambda b: fixed(
    b.query("trace == 'default' and x == 1 and method == 'patterns'")["grar_bound"].mean(), 3))
number("pwr.bound-gap", "28_bounds", ABOVE, BOUNDS)(lambda a, b: fixed(100 * (
    b.query("trace == 'default' and x == 1 and method == 'patterns'")["grar_bound"].mean()
    - a.query("x == 1 and method == 'patterns' and policy == 'fgd'")["grar"].mean())))
number("pwr.above-fgd", "28_bounds", ABOVE)(
    lambda a: span(excess_percent(a).loc["fgd", [LIGHT, HALF, HIGH]], 0, "%"))
number("pwr.above-mixes", "28_bounds", ABOVE)(
    lambda a: span(excess_percent(a).drop("fgd")[[LIGHT, HALF, HIGH]], 0, "%"))
number("pwr.above-mix-half", "28_bounds", ABOVE)(
    lambda a: percent(excess_percent(a).loc["pwr-fgd:0.1", HALF]))
number("pwr.above-fgd-half", "28_bounds", ABOVE)(lambda a: percent(excess_percent(a).loc["fgd", HALF]))


def bound_of(bounds: pd.DataFrame, x: float, column: str) -> float:
    """Bound by single nodes on Default, mean of its seeds."""
    return float(bounds.query("trace == 'default' and method == 'patterns' and x == @x")[column].mean())


number("joint.above-half", "28_bounds", POLICIES, BOUNDS)(lambda p, b: percent(
    100 * (at(p, "joint", HALF, "eopc_w") / bound_of(b, HALF, "eopc_bound_w") - 1)))
number("joint.bound-gap", "28_bounds", POLICIES, BOUNDS)(lambda p, b: fixed(
    100 * (bound_of(b, 1, "grar_bound") - at(p, "joint", 1, "grar"))))


def joint(beyond: pd.DataFrame, policy: str, x: float, column: str) -> float:
    """One cell on the seeds that no parameter has seen."""
    return at(beyond.query("seeds == 'test'"), policy, x, column)


number("joint.half", "24a_joint", BEYOND)(lambda b: percent(joint(b, "joint", HALF, "saving_percent")))
number("joint.best-mix-half", "24a_joint", BEYOND)(
    lambda b: percent(max(joint(b, policy, HALF, "saving_percent") for policy in [*MIXES, "pwr"])))
number("joint.grar", "24a_joint", BEYOND)(lambda b: fixed(joint(b, "joint", 1, "grar"), 3))
number("joint.grar-fgd", "24a_joint", BEYOND)(lambda b: fixed(joint(b, "fgd", 1, "grar"), 3))


@number("joint.met", "24a_joint", BEYOND)
def _(beyond: pd.DataFrame) -> str:
    rows = beyond.query("seeds == 'test'").set_index(["trace", "policy", "x"])
    saving = rows["saving_percent"].unstack("policy")
    grar = rows["grar"].xs(1.0, level="x").unstack("policy")
    margin = (saving["joint"] - saving[[*MIXES, "pwr"]].max(axis=1)).unstack("x")[[LIGHT, HALF, HIGH]]
    serves = grar["joint"] >= (grar[MIXES].max(axis=1) + grar["fgd"]) / 2
    return worded(int(((margin >= -0.5).all(axis=1) & serves).sum()))


def in_a_month(month: pd.DataFrame, policy: str) -> pd.Series:
    """Compare with FGD at each load (%)."""
    mean = month.groupby(["copies", "policy"])["eopc_w"].mean().unstack()
    return 100 * (1 - mean[policy] / mean["fgd"])


for position, load in enumerate(("low", "middle", "high")):
    number(f"month.load-{load}", "69_fleet_experiments", MONTH)(
        lambda m, i=position: fixed(m.groupby("copies")["offered_load"].mean().iloc[i], 2))
    number(f"month.saving-{load}", "69_fleet_experiments", MONTH)(
        lambda m, i=position: percent(in_a_month(m, "pwr-fgd:0.1").iloc[i]))
    if load != "middle":
        number(f"month.joint-{load}", "69_fleet_experiments", MONTH)(
            lambda m, i=position: percent(in_a_month(m, "joint").iloc[i]))


# --- at equal service (chapters 24c, 29d, 29e): frames of runs, a row per trace, policy, seed and demand

BID = "bid:1000:0.75"


def runs_at(frame: pd.DataFrame, trace: str, policy: str, x: float) -> pd.DataFrame:
    """Pick the runs of a policy on a trace when so much has arrived, by seed."""
    rows = frame[(frame["trace"] == trace) & (frame["policy"] == policy) & np.isclose(frame["x"], x)]
    if rows.empty:
        raise ValueError(f"no runs of {policy} on {trace} at {x}")
    return rows.set_index("seed").sort_index()


def served_points(family: pd.DataFrame, equal: pd.DataFrame, trace: str) -> pd.Series:
    """Compute what bid serves more than FGD at full demand, points of the arrived demand, by seed."""
    ours, fgd = (runs_at(frame, trace, policy, 1)
                 for frame, policy in ((family, BID), (equal, "fgd")))
    return 100 * (ours["used_gpu_milli"] / ours["arrived_gpu_milli"]
                  - fgd["used_gpu_milli"] / fgd["arrived_gpu_milli"])


def half_width(values: pd.Series) -> float:
    """Half of the 95 % interval of a mean, normal."""
    return 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5


def curve(frame: pd.DataFrame, trace: str, policy: str) -> pd.DataFrame:
    """Average the runs of a policy on a trace over the seeds, by demand."""
    rows = frame[(frame["trace"] == trace) & (frame["policy"] == policy)]
    return rows.groupby("x")[["eopc_w", "used_gpu_milli"]].mean()


def saved_at_half(frame: pd.DataFrame, fgd: pd.DataFrame, trace: str, policy: str, *, equal: bool) -> float:
    """Power saved against FGD at half load (%), as it is or where both serve as much (eq-equal-saving)."""
    ours, base = curve(frame, trace, policy), curve(fgd, trace, "fgd")
    served = [one.loc[HALF, "used_gpu_milli"] for one in (ours, base)]
    at_w = [np.interp(min(served), one["used_gpu_milli"], one["eopc_w"]) if equal else one.loc[HALF, "eopc_w"]
            for one in (ours, base)]
    return 100 * (1 - float(at_w[0]) / float(at_w[1]))


number("equal.seeds", "29d_equal_service", EQUAL)(lambda e: str(e["seed"].nunique()))
number("equal.arrived", "29d_equal_service", EQUAL)(
    lambda e: percent(saved_at_half(e, e, "gpuspec33", "pwr-fgd:0.2", equal=False)))
number("equal.served", "29d_equal_service", EQUAL)(
    lambda e: percent(saved_at_half(e, e, "gpuspec33", "pwr-fgd:0.2", equal=True)))
for trace in ("default", "gpushare100", "gpuspec20", "gpuspec25", "gpuspec33"):
    number(f"bid.points-{trace}", "29d_equal_service", FAMILY, EQUAL)(
        lambda f, e, trace=trace: fixed(served_points(f, e, trace).mean(), 2))
    number(f"bid.within-{trace}", "29d_equal_service", FAMILY, EQUAL)(
        lambda f, e, trace=trace: fixed(half_width(served_points(f, e, trace)), 2))
number("bid.saved", "29d_equal_service", FAMILY, EQUAL)(
    lambda f, e: percent(saved_at_half(f, e, "default", BID, equal=True)))


@number("bid.traces", "29d_equal_service", FAMILY, EQUAL)
def _(family: pd.DataFrame, equal: pd.DataFrame) -> str:
    more = [served_points(family, equal, trace) for trace in sorted(family["trace"].unique())]
    return str(sum(values.mean() > half_width(values) for values in more))


# --- what no price here sees: a row for each run and demand

CHANGED = "pwr/bid_changed.csv.gz"


@number("memory.behind", "29d_equal_service", CHANGED)
def _(changed: pd.DataFrame) -> str:
    rows = changed[changed["change"] == "half CPU"]
    return fixed(-served_points(rows, rows, "default").mean(), 2)


# --- decided with what is wrong (chapter 71)


def saved_with(placing: pd.DataFrame, policy: str, *, today: bool) -> pd.Series:
    """Power saved (%) against FGD that knows the mix, with today's target or wholly another month's."""
    power_w = placing.groupby(["policy", "month", "share"])["eopc_w"].mean()
    own = power_w[policy].xs(0.0 if today else 1.0, level="share")
    return 100 * (1 - own / power_w["fgd", "today", 0.0])


for policy, name in (("joint", "joint"), ("pwr-fgd:0.1", "mix")):
    number(f"robust.{name}", "71_robustness", WRONG_MIX)(
        lambda p, policy=policy: percent(saved_with(p, policy, today=True).iloc[0]))
    number(f"robust.{name}-least", "71_robustness", WRONG_MIX)(
        lambda p, policy=policy: percent(saved_with(p, policy, today=False).min()))


def ahead_of_gavel(jobs: pd.DataFrame, column: str, longer: float) -> float:
    """How much less Planned takes than Gavel (%) when lengths are off by a factor."""
    own = jobs[(jobs["longer"] == longer) & (jobs["faster"] == 1) & (jobs["catalogue"] == -1)]
    mean = own.groupby("scheduler")[column].mean()
    return 100 * (1 - float(mean["Planned"] / mean["Gavel max-min"]))


for name, column in (("end", "ttd_h"), ("mean", "mean_jct_h")):
    for told, longer in (("", 1.0), ("-wrong", 2.0)):
        number(f"robust.{name}{told}", "71_robustness", WRONG_JOBS)(
            lambda j, column=column, longer=longer: percent(ahead_of_gavel(j, column, longer)))
for told, most in (("", 1.0), ("-wrong", 1.1)):
    number(f"robust.ideal{told}", "71_robustness", WRONG_TABLE)(
        lambda t, most=most: percent(100 * (t.query(
            "num_tasks == 35 and most == @most and policy == 'far'")["rho"].mean() - 1)))


# --- ANDREAS (chapters 39, 34a)

def claimed(theirs: pd.DataFrame, scenario: int) -> float:
    """Find the reduction that the paper states for a scenario."""
    rows = theirs.query("source == 'paper' and quantity == 'total_reduction_percent' and scenario == @scenario")
    return float(rows["value"].iloc[0])


def reductions(sweep: pd.DataFrame) -> pd.Series:
    """Reduction by greedy (%) for each scenario and factor."""
    each = by_greedy(sweep)
    return each.set_axis(each.index.set_levels(each.index.levels[1].astype(float), level=1))


def program_apart(sweep: pd.DataFrame, theirs: pd.DataFrame) -> pd.Series:
    """How far each cell is from the authors' program, in points."""
    program = theirs.query("source == 'program'").astype({"scenario": int}).set_index(["scenario", "factor"])["value"]
    return (reductions(sweep) - program).dropna().abs()


number("andreas.claim-1", "39_andreas_results", THEIRS_ANDREAS)(lambda t: percent(claimed(t, 1), 0))
number("andreas.claim-2", "39_andreas_results", THEIRS_ANDREAS)(lambda t: percent(claimed(t, 2), 0))
number("andreas.cells", "39_andreas_results", SWEEP, THEIRS_ANDREAS)(lambda s, t: str(len(program_apart(s, t))))
number("andreas.apart", "39_andreas_results", SWEEP, THEIRS_ANDREAS)(
    lambda s, t: fixed(program_apart(s, t).max()))
number("andreas.nodes", "39_andreas_results", SWEEP)(lambda s: span(s["num_nodes"], 0))
number("andreas.factors", "39_andreas_results", SWEEP)(lambda s: worded(s["factor"].nunique()))


def nearest(sweep: pd.DataFrame, theirs: pd.DataFrame) -> float:
    """Find the factor at which small nodes come nearest to the paper's number for them."""
    first = reductions(sweep).loc[1]
    return float((first - claimed(theirs, 1)).abs().idxmin())


number("andreas.f-small", "39_andreas_results", SWEEP, THEIRS_ANDREAS)(lambda s, t: fixed(nearest(s, t)))
number("andreas.small-at", "39_andreas_results", SWEEP, THEIRS_ANDREAS)(
    lambda s, t: percent(reductions(s).loc[(1, nearest(s, t))], 0))
number("andreas.large-at", "39_andreas_results", SWEEP, THEIRS_ANDREAS)(
    lambda s, t: percent(reductions(s).loc[(2, nearest(s, t))]))


def first_above(sweep: pd.DataFrame, theirs: pd.DataFrame) -> float:
    """Find the first factor at which large nodes save more than the paper says of them."""
    second = reductions(sweep).loc[2]
    return float(second.index[second > claimed(theirs, 2)][0])


number("andreas.f-large", "39_andreas_results", SWEEP, THEIRS_ANDREAS)(lambda s, t: fixed(first_above(s, t)))
number("andreas.large-there", "39_andreas_results", SWEEP, THEIRS_ANDREAS)(
    lambda s, t: percent(reductions(s).loc[(2, first_above(s, t))], 0))
number("andreas.small-there", "39_andreas_results", SWEEP, THEIRS_ANDREAS)(
    lambda s, t: percent(-reductions(s).loc[(1, first_above(s, t))], 0))
number("andreas.overload", "39_andreas_results", SWEEP)(
    lambda s: fixed(min(f for f, cost in reductions(s).loc[1].items() if cost < 0)))


@number("andreas.both", "39_andreas_results", SWEEP, SEARCH)
def _(sweep: pd.DataFrame, search: pd.DataFrame) -> str:
    claim = next(one for one in ANDREAS_CLAIMS if one.text == "both with one setting")
    ours, status = claim.ours(sweep, search)[:2]
    if status != "not reproduced":
        raise ValueError(f"the text says that no factor gives both, and the frames say: {ours}")
    return ours


for scenario, size in ((1, "small"), (2, "large")):
    number(f"andreas.rg-{size}", "39_andreas_results", SWEEP, SEARCH, THEIRS_ANDREAS)(
        lambda s, r, t, scenario=scenario: percent(by_rg(s, r)[(scenario, f"{nearest(s, t):.1f}")], 0))


def over_greedy(search: pd.DataFrame, sweep: pd.DataFrame, method: str) -> pd.Series:
    """Mean cost over greedy's for each scenario and factor, on the instances that both ran."""
    wide = by_method(pd.concat([sweep, search]), "total_eur").dropna(subset="rg as coded")
    return (wide[method] / wide["greedy"]).groupby(["scenario", "factor"]).mean()


number("andreas.as-coded", "39_andreas_results", SEARCH, SWEEP)(
    lambda search, sweep: span(100 * (over_greedy(search, sweep, "rg as coded") - 1), 1, "%"))
number("andreas.as-printed", "39_andreas_results", SEARCH, SWEEP)(
    lambda search, sweep: span(100 * (1 - over_greedy(search, sweep, "rg").loc[[2]]), 0, "%"))


def saved_by_local(unseen: pd.DataFrame, against: str) -> pd.Series:
    """Compute what `local` costs less than a method (%), for each scenario and factor."""
    wide = by_method(unseen, "total_eur")
    return reduction_percent(wide, "local", [against]).groupby(["scenario", "factor"]).mean()


number("andreas.local-greedy", "39_andreas_results", UNSEEN)(
    lambda u: span(saved_by_local(u, "greedy"), 0, "%"))
number("andreas.local-rg", "39_andreas_results", UNSEEN)(lambda u: span(saved_by_local(u, "rg"), 0, "%"))


# --- Hadar (chapters 42a, 45, 46, 49, 49a)

def on_trace(trace: pd.DataFrame, column: str = "ttd_h") -> pd.Series:
    """Mean of the draws of each scheduler on the 480 jobs, measured speeds."""
    own = trace.query("table == 'measured' and workload == 'K80-hours'")
    return own.groupby("scheduler")[column].mean()


def of_paper(theirs: pd.DataFrame, quantity: str, where: str, **fields: str) -> float:
    """Look up a number of the Hadar paper."""
    rows = theirs[(theirs["quantity"] == quantity) & (theirs["where"] == where)]
    for name, value in fields.items():
        rows = rows[rows[name].fillna("") == value]
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} numbers of the paper fit {quantity}, {where}, {fields}")
    return float(rows["value"].iloc[0])


HADARS = ["Hadar eff", "Hadar effnorm", "Hadar inv"]
GAVELS = ["Gavel makespan", "Gavel max-min"]
number("hadar.claim-speedup", "49_hadar_results", THEIRS_HADAR)(
    lambda t: fixed(of_paper(t, "ttd_ratio", "Abstract")))
number("hadar.claim-ttd", "49_hadar_results", THEIRS_HADAR)(
    lambda t: fixed(of_paper(t, "ttd_h", "IV-B", scheduler="Hadar"), 0, "h"))
number("hadar.ttd", "49_hadar_results", TRACE)(lambda t: span(on_trace(t)[HADARS], 1, "h"))
number("hadar.gavel", "49_hadar_results", TRACE)(lambda t: fixed(on_trace(t)["Gavel max-min"], 1, "h"))
number("hadar.bound", "49_hadar_results", TRACE)(lambda t: fixed(on_trace(t)["fluid bound"], 1, "h"))
number("hadar.most-speedup", "49_hadar_results", TRACE)(
    lambda t: fixed(on_trace(t)["Gavel max-min"] / on_trace(t)["fluid bound"], 2))
number("hadar.best-above", "49_hadar_results", TRACE)(lambda t: percent(
    100 * (on_trace(t)[HADARS].min() / on_trace(t)["price bound"] - 1)))
number("hadar.gavel-above", "49_hadar_results", TRACE)(lambda t: percent(
    100 * (on_trace(t)["Gavel max-min"] / on_trace(t)["price bound"] - 1)))
number("hadar.jct", "49_hadar_results", TRACE)(lambda t: span(on_trace(t, "mean_jct_h")[HADARS], 0, "h"))
number("hadar.gavel-jct", "49_hadar_results", TRACE)(
    lambda t: fixed(on_trace(t, "mean_jct_h")["Gavel max-min"], 0, "h"))
number("hadar.planned", "46_hadar_planned", TRACE)(lambda t: fixed(on_trace(t)["Planned"], 1, "h"))
number("hadar.planned-jct", "46_hadar_planned", TRACE)(
    lambda t: fixed(on_trace(t, "mean_jct_h")["Planned"], 0, "h"))
number("hadar.planned-above", "46_hadar_planned", TRACE)(lambda t: percent(
    100 * (on_trace(t)["Planned"] / on_trace(t)["price bound"] - 1)))
number("hadar.energy-above", "46a_hadar_energy", ENERGY)(
    lambda e: percent(energy_above(e)["Hadar effnorm"], 0))
number("hadar.energy-planned", "46a_hadar_energy", ENERGY)(
    lambda e: percent(energy_above(e)["Planned"], 0))
number("hadar.mixing", "49_hadar_results", TRACE)(lambda t: percent(
    100 * (on_trace(t)["Hadar effnorm, one type"] / on_trace(t)["Hadar effnorm"] - 1)))


def energy_above(energy: pd.DataFrame) -> pd.Series:
    """Energy above the bound for that end (%), nodes on."""
    mean = energy.query("table == 'measured'").groupby("scheduler").mean(numeric_only=True)
    return 100 * (mean["on_kwh"] / mean["on_bound_kwh"] - 1)


SLOT_S = 360


def forked(nodes: pd.DataFrame, column: str, over: str) -> pd.Series:
    """Mean ratio of HadarE and another scheduler over the mixes, slots of six minutes, main reading."""
    own = nodes[nodes["slot_s"] == SLOT_S].groupby(["cluster", "mix", "formula", "scheduler"])[column].mean().unstack()
    ratio = own["HadarE density"] / own[over] if column == "cru" else own[over] / own["HadarE density"]
    return ratio.groupby(["cluster", "formula"]).mean()


number("hadare.cru", "49_hadar_results", NODES)(lambda n: span(forked(n, "cru", "Gavel max-min"), 2))
number("hadare.ttd", "49_hadar_results", NODES)(lambda n: span(forked(n, "ttd_s", "Gavel max-min"), 2))
number("hadare.slot", "49_hadar_results", NODES)(
    lambda n: fixed(n[n["slot_s"] == SLOT_S]["slot_s"].iloc[0] / 60, 0, "minutes"))
number("hadare.claim-cru", "49_hadar_results", THEIRS_HADAR)(lambda t: span(
    [of_paper(t, "cru_ratio", "VI-C", setting=s, against="Gavel") for s in ("aws", "testbed")], 2))
number("hadare.claim-ttd", "49_hadar_results", THEIRS_HADAR)(lambda t: span(
    [of_paper(t, "ttd_ratio", "VI-C", setting=s, scheduler="HadarE", against="Gavel") for s in ("aws", "testbed")], 2))


# --- FAR (chapters 55, 55a, 58, 59)

def table_of(table: int, frame: pd.DataFrame) -> pd.DataFrame:
    """Cells of a table of the FAR paper beside ours."""
    return beside(table, frame)


number("far.cells", "59_far_results", SINGLE)(lambda s: str(len(table_of(4, s))))
number("far.cells-met", "59_far_results", SINGLE)(
    lambda s: str(int(((table_of(4, s)["0"] - table_of(4, s)["paper"]).abs() <= 0.02).sum())))
number("far.refine-theirs", "59_far_results", THEIRS_FAR)(lambda t: span(
    t.query("table == 6 and quantity == 'p_ref_percent' and num_tasks > 10")["paper"], 1, "%"))
number("far.refine", "59_far_results", SINGLE)(
    lambda s: "{least_gain:.1f}{dash}{most_gain:.1f}{space}%".format(
        dash=DASH, space=SPACE, **of_single_batches(s)))
number("far.before-theirs", "59_far_results", SINGLE)(lambda s: fixed(before_phase_3(s)[0], 2))
number("far.before", "59_far_results", SINGLE)(lambda s: fixed(before_phase_3(s)[1], 2))
number("far.multi-theirs", "59_far_results", THEIRS_FAR)(lambda t: span(
    t.query("table == 9")["paper"], 0, "%"))
number("far.multi-allowed", "59_far_results", THEIRS_FAR)(lambda t: percent(
    100 * (t.query("table == 4")["paper"].max() - 1), 0))
number("far.ten-above", "58_far_plus", DISTANCE)(lambda d: span(d.query("quantity == 'far'")["mean"], 0, "%"))
number("far.ten-plus", "58_far_plus", DISTANCE)(lambda d: percent(d.query("quantity == 'far_plus'")["mean"].max(), 0))
number("far.few", "58_far_plus", DISTANCE)(lambda d: worded(int(d["num_tasks"].max())))
number("far.many", "58_far_plus", PLUS)(lambda p: str(rho(p, "rho_far").index.get_level_values("num_tasks").min()))
number("far.many-above", "58_far_plus", PLUS)(lambda p: span(
    100 * (rho(p, "rho_far") / rho(p, "rho_bound") - 1), 1, "%"))
number("far.ten-ideal", "58_far_plus", DISTANCE)(
    lambda d: span(-d.query("quantity == 'ideal'")["mean"], 0, "%"))
number("far.ten-bound", "58_far_plus", DISTANCE)(
    lambda d: span(-d.query("quantity == 'bound'")["mean"], 0, "%"))
number("far.plus-gain", "58_far_plus", PLUS)(lambda p: span(
    100 * (1 - rho(p, "rho_plus") / rho(p, "rho_far")), 0, "%"))
number("far.plus-above", "58_far_plus", PLUS)(lambda p: span(
    100 * (rho(p, "rho_plus") / rho(p, "rho_bound") - 1), 1, "%"))
number("far.worst-a30", "55a_far_proofs", RATIOS)(lambda r: fixed(worst(r, "A30")["worst_ratio"].max(), 2))
number("far.proved-a30", "55a_far_proofs", RATIOS)(lambda r: fixed(worst(r, "A30")["proved_factor"].max(), 2))
number("far.worst-a100", "55a_far_proofs", RATIOS)(lambda r: fixed(worst(r, "A100")["worst_ratio"].max(), 2))
number("far.proved-a100", "55a_far_proofs", RATIOS)(lambda r: fixed(worst(r, "A100")["proved_factor"].max(), 0))


def rho(plus: pd.DataFrame, quantity: str) -> pd.Series:
    """One measure of FAR+ by cell, from twenty tasks on."""
    return plus[(plus["quantity"] == quantity) & (plus["num_tasks"] >= 20)].set_index(
        ["scaling", "width", "num_tasks"])["mean"]


def worst(ratios: pd.DataFrame, model: str) -> pd.DataFrame:
    """Batches on one GPU of a model."""
    return ratios.query("model == @model and num_gpus == 1")


# --- one cluster, one day (chapter 70)

EUR, KWH = "total_eur", "energy_kwh"


def interval(days: pd.DataFrame, column: str, idea: str, way: str, digits: int, unit: str) -> str:
    """Write a saving with its interval over the days."""
    row = effects_of(days, column).set_index(["idea", "way"]).loc[(idea, way)]
    return (f"{fixed(row['saving'], digits, unit)} "
            f"({fixed(row['low'], digits)} to {fixed(row['high'], digits)})")


def above_floor(days: pd.DataFrame) -> pd.Series:
    """Energy of each variant above what no schedule can go below (%)."""
    means = days.groupby("variant")[[KWH, "bound_kwh"]].mean()
    return 100 * (means[KWH] / means["bound_kwh"] - 1)


def mean_day(days: pd.DataFrame, variant: str, column: str) -> float:
    """Mean over the days."""
    return float(days[days["variant"] == variant][column].mean())


number("day.days", "70_fleet_day", DAY)(lambda d: str(d["seed"].nunique()))
number("day.plain", "70_fleet_day", DAY)(lambda d: fixed(mean_day(d, PLAIN, EUR), 0, "EUR"))
number("day.all", "70_fleet_day", DAY)(lambda d: interval(d, EUR, "all four", "together", 0, "EUR"))
number("day.all-kwh", "70_fleet_day", DAY)(lambda d: interval(d, KWH, "all four", "together", 0, "kWh"))
number("day.plain-kwh", "70_fleet_day", DAY)(lambda d: fixed(mean_day(d, PLAIN, KWH), 0, "kWh"))
for idea, short in (("PWR+FGD", "pwr"), ("ANDREAS", "andreas"), ("Hadar", "hadar"), ("FAR", "far")):
    number(f"day.{short}-eur", "70_fleet_day", DAY)(
        lambda d, idea=idea: interval(d, EUR, idea, "share", 0, "EUR"))
for idea, short in (("PWR+FGD", "pwr"), ("Hadar", "hadar")):
    number(f"day.{short}-kwh", "70_fleet_day", DAY)(
        lambda d, idea=idea: interval(d, KWH, idea, "share", 0, "kWh"))
number("day.hadar-alone", "70_fleet_day", DAY)(lambda d: interval(d, EUR, "Hadar", "alone", 0, "EUR"))
number("day.hadar-after-pwr", "70_fleet_day", DAY)(
    lambda d: fixed(mean_day(d, "P", EUR) - mean_day(d, "PH", EUR), 0, "EUR"))
number("day.types", "70_fleet_day", DAY)(
    lambda d: fixed(mean_day(d, ALL, EUR) - mean_day(d, "PF types", EUR), 0, "EUR"))
number("day.nodes", "70_fleet_day", DAY)(lambda d: str(len(example_cluster())))
number("day.plain-above", "70_fleet_day", DAY)(lambda d: percent(above_floor(d)[PLAIN], 0))
number("day.all-above", "70_fleet_day", DAY)(lambda d: percent(above_floor(d)[ALL], 0))
number("day.above", "70_fleet_day", DAY)(lambda d: percent(
    100 * (d.groupby("variant")[KWH].mean() / d.groupby("variant")["bound_kwh"].mean() - 1).min(), 0))


# --- claims, counted

STATUS = {"reproduced": "reproduced", "direction only": "direction", "not reproduced": "not",
          "impossible": "impossible"}
FAMILIES = {"pwr": "online", "andreas": "andreas", "hadar": "hadar", "far": "far"}


def published(family: str) -> list[Claim]:
    """Claims of a paper that stored frames decide."""
    claims = import_module(f"studies.{FAMILIES[family]}").CLAIMS
    return [claim for claim in claims if claim.frames and claim.paper != "ours"]


@cache
def counted(family: str) -> Mapping[str, int]:
    """How many claims of a paper have each status."""
    statuses = claims_frame(published(family), read)["status"]
    kinds = [STATUS.get(status, "untestable") for status in statuses]
    return {kind: kinds.count(kind) for kind in [*dict.fromkeys(STATUS.values()), "untestable"]}


CHAPTERS = {"pwr": "29a_pwr_traces", "andreas": "39_andreas_results", "hadar": "49_hadar_results",
            "far": "59_far_results"}
for family, chapter in CHAPTERS.items():
    paths = tuple(dict.fromkeys(path for claim in published(family) for path in claim.frames))
    for kind in [*dict.fromkeys(STATUS.values()), "untestable"]:
        number(f"claims.{family}-{kind}", chapter, *paths)(
            lambda *frames, family=family, kind=kind: str(counted(family)[kind]))
    number(f"claims.{family}", chapter, *paths)(
        lambda *frames, family=family: str(sum(counted(family).values())))
EVERYTHING = tuple(dict.fromkeys(path for family in CHAPTERS for claim in published(family) for path in claim.frames))
number("claims.all", "00_notation", *EVERYTHING)(
    lambda *frames: str(sum(sum(counted(family).values()) for family in CHAPTERS)))
for kind in dict.fromkeys(STATUS.values()):
    number(f"claims.all-{kind}", "00_notation", *EVERYTHING)(
        lambda *frames, kind=kind: str(sum(counted(family)[kind] for family in CHAPTERS)))
