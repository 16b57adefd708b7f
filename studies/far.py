"""The random batches of FAR's tables, what is measured on them, and which claims that decides."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sched_lab.far.baselines import fix_partition, fix_partition_best, miso, parse_partition
from sched_lab.far.bounds import lower_bound, optimum_with_reconfiguration
from sched_lab.far.mig import Mig, Schedule, check_schedule, mig_of
from sched_lab.far.multibatch import (
    batch_plans,
    chain,
    excess_percent,
    gain_percent,
    ideal_s,
    trivial_chain,
)
from sched_lab.far.plus import far_plus
from sched_lab.far.refine import far
from sched_lab.far.tasks import NEAR, SCALINGS, SUB, WIDTHS, generate_times
from sched_lab.lab.arrays import Floats
from sched_lab.lab.sweeps import grid

from .claims import Row, graded, said, section
from .far_proofs import proved_factor, worst_ratio
from .reproduction import Claim, Experiment, Workplace

if TYPE_CHECKING:
    import altair as alt

__all__ = ['EXPERIMENTS', 'CLAIMS', 'FIGURES']

RUNS = 1000
BATCHES = 1001
SIZES = (10, 15, 20, 25, 30, 35)
# p_sup; what memory-bound tasks drop to is sub-linear unless said
SUPERS = ("0", "0.25", "0.5", "0.5 near")


def batches(scaling: str, width: str, num_tasks: int, p_sup: str,
            count: int) -> Iterator[tuple[Mig, Floats]]:
    """Yield the A100 and the times of each batch of a cell.

    Parameters
    ----------
    scaling, width : keys of `SCALINGS` and `WIDTHS`
    p_sup : one of `SUPERS`
    count : how many batches
    """
    mig = mig_of("A100")
    (share, *drop) = p_sup.split()
    words = f"{scaling} {width} {num_tasks} {p_sup}"
    for run in range(count):
        rng = np.random.default_rng([zlib.crc32(words.encode()), run])
        yield mig, generate_times(mig, num_tasks, SCALINGS[scaling], WIDTHS[width], rng,
                                  super_share=float(share), after=NEAR if drop else SUB)


def averaged(rows: list[dict[str, float]]) -> pd.DataFrame:
    """One row per quantity: its mean, standard error, and number of runs."""
    frame = pd.DataFrame(rows)
    return pd.DataFrame({"quantity": frame.columns, "mean": frame.mean().to_numpy(),
                         "standard_error": (frame.std(ddof=1) / len(frame) ** 0.5).to_numpy(),
                         "runs": len(frame)})


def single(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """FAR on one batch at a time: Tables 4 and 6."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS):
        done = far(mig, times_s)
        check_schedule(done.schedule, times_s)
        makespan_s = done.schedule.makespan_s
        ideal = ideal_s(mig, [times_s])
        rows.append({"rho": makespan_s / ideal, "rho_before": done.before_s / ideal,
                     "moves": done.moves, "swaps": done.swaps,
                     "p_ref_percent": 100 * (done.before_s / makespan_s - 1)})
    return averaged(rows)


def plus(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """FAR and FAR+ on the same batches."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS // 25):
        better = far_plus(mig, times_s)
        ideal = ideal_s(mig, [times_s])
        check_schedule(better.schedule, times_s)
        assert better.schedule.makespan_s <= better.far_s
        rows.append({"rho_far": better.far_s / ideal, "rho_family": better.family_s / ideal,
                     "rho_plus": better.schedule.makespan_s / ideal,
                     "rho_bound": lower_bound(mig, times_s) / ideal})
    return averaged(rows)


def effort(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """FAR+ with fewer and more proposals."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS // 25):
        ideal = ideal_s(mig, [times_s])
        row = {}
        for proposals in (0, 25_000, 100_000, 400_000, 1_600_000):
            better = far_plus(mig, times_s, proposals=proposals)
            row["rho_far"] = better.far_s / ideal
            row[f"rho_{proposals}"] = better.schedule.makespan_s / ideal
        rows.append(row)
    return averaged(rows)


def distance(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """How far FAR, annealing and the lower bound are from the optimum."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS // 5):
        best = optimum_with_reconfiguration(mig, times_s)
        annealed = far_plus(mig, times_s, max_visits=0)
        check_schedule(best.schedule, times_s)
        assert best.is_proved
        assert best.makespan_s <= annealed.schedule.makespan_s * (1 + 1e-9)
        found_s = {
            "far": annealed.far_s, "annealed": annealed.schedule.makespan_s,
            "far_plus": far_plus(mig, times_s).schedule.makespan_s,
            "ideal": ideal_s(mig, [times_s]), "bound": lower_bound(mig, times_s)}
        rows.append({name: 100 * (value_s / best.makespan_s - 1)
                     for name, value_s in found_s.items()})
    return averaged(rows)


SIMPLER: dict[str, Callable[[Mig, Floats], Schedule]] = {
    "miso": miso,
    "miso, barrier": partial(miso, has_barrier=True),
    "miso, best mapping": partial(miso, mapping="best"),
    "miso, best mapping, barrier": partial(miso, mapping="best", has_barrier=True),
    "fixpart:1-1-1-1-1-1-1": lambda mig, times_s: fix_partition(
        mig, times_s, parse_partition(mig, "1-1-1-1-1-1-1")),
    "fixpart:7": lambda mig, times_s: fix_partition(mig, times_s, parse_partition(mig, "7")),
    "fixpart-best": fix_partition_best}


def sigma(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """Makespans of simpler schedulers over FAR's: Table 5, and the readings of MISO-opt."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS):
        far_s = far(mig, times_s).schedule.makespan_s
        row = {}
        for name, solve in SIMPLER.items():
            schedule = solve(mig, times_s)
            check_schedule(schedule, times_s)
            row[f"sigma {name}"] = schedule.makespan_s / far_s
        rows.append(row)
    return averaged(rows)


def pairs_s(mig: Mig, times_s: list[Floats], plans: list[Any],
            join: Callable[..., Any]) -> Floats:
    """Makespans of the first and second batch joined, of the third and fourth, ..."""
    return np.array([join(mig, times_s[k:k + 2], plans=plans[k:k + 2]).makespan_s
                     for k in range(0, len(times_s) - 1, 2)])


def chains(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """Batches one after the other: Tables 7, 8 and 9."""
    mig = mig_of("A100")
    times_s = [t for _, t in batches(scaling, width, num_tasks, p_sup, BATCHES)]
    plans = batch_plans(mig, times_s)
    joins = (trivial_chain, partial(chain, moves=False), chain)
    plain, turned, moved = (join(mig, times_s, plans=plans) for join in joins)
    for one in (plain, turned, moved):
        check_schedule(one.schedule, np.concatenate(times_s))
    alone_s, turned_s, moved_s = (pairs_s(mig, times_s, plans, join) for join in joins)
    values = {
        "p_rev_percent": gain_percent(plain.makespan_s, turned.makespan_s),
        "p_move_swap_percent": gain_percent(plain.makespan_s, moved.makespan_s),
        "p_rev_percent of pairs": 100 * (alone_s / turned_s - 1).mean(),
        "p_move_swap_percent of pairs": 100 * (alone_s / moved_s - 1).mean(),
        "moves": moved.moves[1:].mean(), "swaps": moved.swaps[1:].mean(),
        "p_multi_batch_percent": excess_percent(mig, times_s, moved.makespan_s),
        "p_trivial_percent": excess_percent(mig, times_s, plain.makespan_s)}
    return pd.DataFrame({"quantity": list(values), "mean": list(values.values()), "runs": BATCHES})


MODELS_SEARCHED = ("A30", "A100", "H100")
ROUNDS = 3000
STARTS = 5


def ratios(model: str, num_gpus: int, num_tasks: int) -> dict[str, float]:
    """The worst ratio of FAR to the optimum that one search finds."""
    mig = mig_of(model, num_gpus)
    seed = [MODELS_SEARCHED.index(model), num_gpus, num_tasks]
    worst = worst_ratio(mig, num_tasks, seed, ROUNDS, starts=STARTS)
    factor = proved_factor(mig)
    assert worst.ratio <= factor + 1e-9
    return {"batches": ROUNDS, "worst_ratio": worst.ratio, "proved_factor": factor}


def swept(function: Callable[..., Any], cells: list[dict[str, Any]], version: int,
          workplace: Workplace) -> Mapping[str, pd.DataFrame]:
    """The frame of an experiment: its function on every cell."""
    name = function.__name__
    frame = workplace.sweep(function, cells, name, depends_on={"version": version})
    return {f"far/{name}.csv": frame.round(6)}


def experiment(function: Callable[..., Any], sentence: str, minutes: float, version: int,
               cells: list[dict[str, Any]], **parameters: Any) -> Experiment:
    """An experiment that sweeps a function over cells.

    Parameters
    ----------
    version : raised when a change of the package changes the result
    parameters : all else that the frame depends on
    """
    name = function.__name__
    return Experiment(name, sentence, (f"far/{name}.csv",), minutes,
                      {"version": version, **parameters}, partial(swept, function, cells, version))


EVERY_KIND = {"scaling": list(SCALINGS), "width": list(WIDTHS)}
DRAWN = {"runs": RUNS, "batches": BATCHES}
AS_DRAWN = "position of the model, number of GPUs, number of tasks"

EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in (
    experiment(single, "FAR on one batch at a time: Tables 4 and 6", 1.2, 1,
               grid(**EVERY_KIND, num_tasks=list(SIZES), p_sup=list(SUPERS)), **DRAWN),
    experiment(plus, "FAR+ and the lower bound beside FAR", 3.0, 5,
               grid(**EVERY_KIND, num_tasks=list(SIZES), p_sup=["0"]), **DRAWN),
    experiment(effort, "FAR+ with fewer and more proposals", 1.3, 1,
               grid(scaling=["mixed"], width=["wide"], num_tasks=[20, 30, 35], p_sup=["0"]),
               **DRAWN),
    experiment(distance, "FAR, annealing and the bounds beside the optimum", 2.3, 2,
               grid(**EVERY_KIND, num_tasks=[10], p_sup=["0"]), **DRAWN),
    experiment(sigma, "simpler schedulers beside FAR: Table 5", 1.6, 1,
               grid(**EVERY_KIND, num_tasks=[15], p_sup=list(SUPERS)), **DRAWN),
    experiment(chains, "batches one after the other: Tables 7, 8 and 9", 0.7, 1,
               grid(**EVERY_KIND, num_tasks=list(SIZES), p_sup=["0", "0.5"]), **DRAWN),
    experiment(ratios, "the worst batches found, beside the proved factors", 3.0, 1,
               grid(model=list(MODELS_SEARCHED), num_gpus=[1, 2], num_tasks=[2, 3, 4, 5]),
               rounds=ROUNDS, starts=STARTS, seed=AS_DRAWN))}

CELL = ["scaling", "width", "num_tasks", "quantity"]


def paper_tables() -> pd.DataFrame:
    """Tables 4 to 9 as printed: table, the cell, and the paper's number."""
    return pd.read_csv(Path(__file__).parents[1] / "data" / "paper" / "far_tables.csv")


def beside(table: int, frame: pd.DataFrame) -> pd.DataFrame:
    """The paper's cells of a table and ours, one column per reading of p_sup."""
    paper = paper_tables()
    wide = frame.pivot_table(index=CELL, columns="p_sup", values="mean")
    return paper[paper["table"] == table].set_index(CELL)[["paper"]].join(wide, how="left")


def judge(row: pd.Series[Any], reading: str) -> str:
    """Status of a cell: within the tolerance of its kind, within a factor of two, or neither."""
    given = row["paper"]
    found = row[reading]
    cell: Any = row.name
    quantity = cell[-1]
    apart = abs(found - given)
    if quantity == "rho":
        close = apart <= 0.02
    elif quantity.startswith("sigma"):
        close = apart <= 0.05 * given
    else:
        close = apart <= max(0.25, 0.15 * given)  # operations per batch, or points
    near = given / 2 <= found <= given * 2
    return "reproduced" if close else "direction only" if near else "not reproduced"


def judged(table: int, frame: pd.DataFrame, reading: str = "0") -> pd.DataFrame:
    """`beside` with a status, whole numbers of digits."""
    rows = beside(table, frame)
    assert rows.notna().all(axis=None)
    return rows.round(3).assign(status=rows.apply(judge, axis=1, reading=reading))


def rho_of(single: pd.DataFrame, width: str) -> pd.DataFrame:
    """Mean rho, scaling by number of tasks, for p_sup 0."""
    rows = single.query(f"quantity == 'rho' and width == '{width}' and p_sup == '0'")
    return rows.pivot_table(index="scaling", columns="num_tasks", values="mean", sort=False)


def rho_on_a30(num_tasks: int, rng: np.random.Generator) -> float:
    """Mean rho of 300 batches on an A30, a third of the tasks for each size."""
    mig = mig_of("A30")
    thirds = {1: 1 / 3, 2: 1 / 3, 4: 1 / 3}
    drawn = [generate_times(mig, num_tasks, thirds, WIDTHS["wide"], rng) for _ in range(300)]
    return float(np.mean([
        far(mig, times_s).schedule.makespan_s / ideal_s(mig, [times_s]) for times_s in drawn]))


def trends_hold(sigma: pd.DataFrame, reading: str) -> bool:
    """Single slices lose where tasks scale well, the whole GPU where not, MISO-opt if wide."""
    by = beside(5, sigma)[reading].droplevel("num_tasks").unstack("quantity")
    ones = by["sigma fixpart:1-1-1-1-1-1-1"]
    whole = by["sigma fixpart:7"]
    of_miso = by["sigma miso"].unstack("width")
    return bool((ones.loc["poor"] <= ones.loc["good"] + 0.02).all()
                and (whole.loc["good"] < whole.loc["poor"]).all()
                and (of_miso["wide"] > of_miso["narrow"]).all())


def before_phase_3(single: pd.DataFrame) -> tuple[float, float]:
    """Rho after phases 1 and 2 for 20 tasks, Mixed, Wide: the paper's and ours.

    The paper's is its Table 4, taken before the gain of its Table 6.
    """
    row = ("mixed", "wide", 20)
    after, gain_percent = (beside(table, single)["paper"].loc[(*row, quantity)]
                           for table, quantity in ((4, "rho"), (6, "p_ref_percent")))
    ours = single.query("quantity == 'rho_before' and p_sup == '0'").set_index(
        ["scaling", "width", "num_tasks"])["mean"]
    return float(after * (1 + gain_percent / 100)), float(ours[row])


def of_single_batches(single: pd.DataFrame) -> dict[str, Any]:
    """Makespans over the ideal (Table 4), and what phase 3 does to them (Table 6)."""
    is_same = judged(4, single)["status"] == "reproduced"
    does_fall = (rho_of(single, "narrow").diff(axis=1).iloc[:, 1:] <= 0).all(axis=None)
    largest = rho_of(single, "wide").max()
    refined = judged(6, single).xs("p_ref_percent", level="quantity").query("num_tasks >= 20")
    theirs, ours = before_phase_3(single)
    operations = beside(6, single)[["paper", "0"]].drop("p_ref_percent", level="quantity")
    sums = operations.unstack("quantity").T.groupby(level=0).sum().T
    sums = sums.xs("wide", level="width").query("num_tasks >= 20")
    same_sums = (sums["0"] / sums["paper"]).between(0.6, 1.4).all()
    return {"num_same": is_same.sum(), "share_same": is_same.mean(), "does_fall": does_fall,
            "narrow": "falls with the number of tasks" if does_fall else
                      "jumps with the number of tasks modulo 7",
            "largest": largest.max(), "largest_at": largest.idxmax(),
            "least_gain": refined[list(SUPERS)].min(axis=None),
            "most_gain": refined[list(SUPERS)].max(axis=None),
            "gains_as_much": (refined["status"] == "reproduced").any(),
            "before": ours, "their_before": theirs, "same_sums": same_sums,
            "sums": "same sums" if same_sums else "other sums"}


def of_simpler_schedulers(sigma: pd.DataFrame) -> dict[str, Any]:
    """Whether simpler schedulers come in the order of Table 5, in every reading."""
    holds = all(trends_hold(sigma, reading) for reading in SUPERS)
    return {"holds": holds, "order": "order and trends" if holds else "another order"}


def of_chains(chains: pd.DataFrame) -> dict[str, Any]:
    """What a chain of batches gains (Table 7), swaps (8), and takes above the ideal (9)."""
    gains = beside(7, chains)["0"].unstack("num_tasks").groupby("quantity").mean()
    holds = ((gains[10] > gains[20]).all()
             and (gains.loc["p_move_swap_percent"] > gains.loc["p_rev_percent"]).all())
    swaps = judged(8, chains).query("num_tasks == 10 and width == 'narrow' and quantity == 'swaps'")
    excess = beside(9, chains).droplevel("quantity")
    paper = paper_tables()
    rho = paper[paper["table"] == 4].set_index(CELL)["paper"].droplevel("quantity")
    readings = excess[["0", "0.5"]].to_numpy(np.float64)
    return {"holds": holds, "trend": "same trend" if holds else "another trend",
            "swaps": swaps["0"].max(), "swaps_as_much": (swaps["status"] == "reproduced").any(),
            "least": np.nanmin(readings), "most": np.nanmax(readings),
            "is_above_its_bound": (excess["paper"] > 3 * 100 * (rho - 1)).all()}


def of_searches(ratios: pd.DataFrame) -> dict[str, Any]:
    """The worst ratios found on one GPU, and by how much they exceed the proved factors."""
    one = ratios[ratios["num_gpus"] == 1].groupby("model")[["worst_ratio", "proved_factor"]].max()
    return {**one["worst_ratio"], "above": one["worst_ratio"] - one["proved_factor"]}


SINGLE = ("far/single.csv",)
CHAINS = ("far/chains.csv",)


TABLE_CLAIMS = (
    *section(
        of_single_batches, SINGLE,
        Row("1.23 to 1.01", r"Table 4: $\rho$, 18 cells", "the same in {num_same}",
            lambda n: graded(n.share_same > 0.9, n.share_same > 0.5),
            "$p_{{sup}} = 0$; Good, 10 tasks: 1.17"),
        Row("", '"similar for NarrowTimes" (6.4.2)', "{narrow}",
            lambda n: graded(n.does_fall), "equal tasks fill seven slices in rounds")),
    *section(
        lambda: {"rho": rho_on_a30(10, np.random.default_rng(30))}, (),
        Row("1.01", r"$\rho \sim 1.01$ on an A30, $n = 10$", "{rho:.2f}",
            lambda n: graded(abs(n.rho - 1.01) <= 0.02), "reached at 20 tasks")),
    *section(
        of_single_batches, SINGLE,
        Row("1.10", "synthetic error at most 1.10 (abstract)",
            "{largest:.2f} at {largest_at} tasks",
            lambda n: "impossible" if n.largest > 1.10 else "reproduced",
            "Table 4 has 1.23, too; true from 15 tasks on")),
    said("", r"Rodinia, $\rho = 1.22$, $\sigma$ 2.10, 2.18, 1.16, 1.26", "none", "not testable",
         "the kernels' times are not published"),
    said("2 %", "Table 3: simulation within 2 % of a real A30", "none", "not testable",
         "needs the kernels and a GPU"),
    *section(
        of_simpler_schedulers, ("far/sigma.csv",),
        Row("", r"Table 5: $\sigma$, 24 cells", "{order}", lambda n: graded(False, n.holds),
            "$p_{{sup}}$ and MISO-opt underspecified")),
    *section(
        of_single_batches, SINGLE,
        Row("7.5 to 15 %", "Table 6: $p_{ref}$ from 20 tasks on",
            "{least_gain:.1f} to {most_gain:.1f} %", lambda n: graded(n.gains_as_much),
            "our phases 1 and 2 leave less to mend: at 20 tasks, Mixed, Wide they end at "
            "{before:.2f} of the ideal; by its Tables 4 and 6 the paper's end at "
            "{their_before:.2f}"),
        Row("", "Table 6: moves and swaps", "{sums}", lambda n: graded(False, n.same_sums),
            "columns exchanged for wide times")),
    *section(
        of_chains, CHAINS,
        Row("", "Table 7: gains of the chain", "{trend}", lambda n: graded(False, n.holds),
            "seams underspecified"),
        Row("9.7", "Table 8: up to 9.7 swaps at 10 tasks", "{swaps:.1f}",
            lambda n: graded(n.swaps_as_much), "too few tasks for so many improving swaps"),
        Row("83 to 95 %", "Table 9: $p_{multi}$", "{least:.1f} to {most:.0f} %",
            lambda n: "impossible" if n.is_above_its_bound else "not reproduced",
            "above its own upper bound")),
    said("", "1 to 2 ms for 10 to 35 tasks, 12.3, 532, 1621 ms for 100, 500, 1000",
         "see `benchmarks/README.md`", "not testable",
         "times of another machine; 6.5.2 has 19.43 ms for 15 tasks, more than 6.4.2 has for 100"))


def factor_claim(model: str, factor: str, why: str) -> Row:
    """FAR's proved factor on one GPU of a model, which no batch that was found contradicts.

    Parameters
    ----------
    model, factor : of the GPU; what is proved
    why : what the proof needs
    """
    return Row(factor, f"FAR on one {model} ends within {factor} of the optimum",
               f"{{{model}:.3f}} found",
               lambda n: "impossible" if n.above[model] > 1e-6 else "reproduced", why)


FACTOR_CLAIMS = section(
    of_searches, ("far/ratios.csv",),
    factor_claim("A30", "7/4", "proved; cutting takes no time"),
    factor_claim("A100", "2", "proved, case 2 after a repair; cutting takes no time"),
    factor_claim("H100", "2", "as the A100"))

CLAIMS: tuple[Claim, ...] = (*TABLE_CLAIMS, *FACTOR_CLAIMS)

Read = Callable[[str], pd.DataFrame]


def rho_figure(read: Read) -> alt.LayerChart:
    """Draw Table 4: points are the paper's, lines ours."""
    import altair as alt

    paper = paper_tables().query("table == 4")
    ours = read("far/single.csv").query("quantity == 'rho' and width == 'wide' and p_sup == '0'")
    axes = {
        "x": alt.X("num_tasks:Q", title="tasks in the batch",
                   scale=alt.Scale(domain=[9, 36], nice=False)),
        "color": alt.Color("scaling:N", title=None, sort=list(SCALINGS))}
    y = alt.Y("mean:Q", title="rho", scale=alt.Scale(zero=False))
    line = alt.Chart(ours).mark_line().encode(**axes, y=y)
    points = alt.Chart(paper).mark_point(filled=True, size=60).encode(**axes, y="paper:Q")
    title = "Makespan of FAR over perfectly shared work, A100"
    chart: alt.LayerChart = alt.layer(line, points, title=title).properties(width=520, height=260)
    return chart


def plus_figure(read: Read) -> alt.FacetChart:
    """Draw rho of FAR and FAR+ for every kind of batch."""
    import altair as alt

    names = {"rho_far": "FAR", "rho_plus": "FAR+"}
    frame = read("far/plus.csv").query(f"quantity in {list(names)}")
    frame = frame.assign(method=frame["quantity"].map(names),
                         kind=frame["scaling"] + ", " + frame["width"])
    lines = alt.Chart(frame).mark_line(point=True).encode(
        alt.X("num_tasks:O", title="tasks in the batch"),
        alt.Y("mean:Q", title="rho", scale=alt.Scale(zero=False)),
        alt.Color("method:N", title=None))
    chart: alt.FacetChart = lines.properties(width=190, height=150).facet(
        alt.Facet("kind:N", title=None), columns=3)
    return chart


FIGURES: dict[str, Callable[[Read], Any]] = {"far_rho": rho_figure, "far_plus": plus_figure}
