"""What the PWR paper says of the Default trace, beside what our runs say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from .claims import Each, Row, Table, graded, section
from .reproduction import Claim

EVALUATION = "pwr/evaluation_mean.csv.gz"
POWER = "pwr/default_cluster_power.csv"
ALPHA = "pwr/default_alpha.csv"
MIXES = ["pwr-fgd:0.05", "pwr-fgd:0.1", "pwr-fgd:0.2", "pwr-fgd:0.5", "pwr"]
SELECTED = MIXES[:3]
COMPETITORS = ["bestfit", "dotprod", "gpu-packing", "gpu-clustering"]
FOLLOWERS = [*SELECTED, "bestfit"]
REST = COMPETITORS[1:]
EACH = "(0.05, 0.1, 0.2, 0.5, PWR)"


def default_curves(evaluation: Table) -> Table:
    """Seed means on the Default trace, by policy and demand."""
    return evaluation[evaluation["trace"] == "default"].set_index(["policy", "x"]).sort_index()


def where(curves: Table, policy: str, is_true: Callable[[Table], Table]) -> Table:
    """Points of the grid at which something holds for a policy."""
    rows = curves.loc[policy]
    return rows.index[is_true(rows)]


def serves_all_until(curves: Table, policy: str) -> float:
    """Last demand of which a policy refuses nothing."""
    return float(where(curves, policy, lambda rows: rows["grar"].fillna(1) == 1).max())


PHASES = {"gain ends": 0.15, "fall begins": 0.8, "fall ends": 0.9, "rebound ends": 0.93}


def phases(curves: Table, policy: str) -> dict[str, float]:
    """Demands at which the phases of a saving end."""
    saving = curves.loc[policy, "saving_percent"]
    ahead = pd.Series(saving.to_numpy()[10:] - saving.to_numpy()[:-10], saving.index[:-10])
    falls = ahead.index[(ahead < -1) & (ahead.index > 0.4)][0]
    low = saving.loc[0.8:].idxmin()
    back = saving.loc[low:]
    made = back.index[back >= back.iloc[0] + 0.95 * (back.iloc[-1] - back.iloc[0])][0]
    return dict(zip(PHASES, (saving.idxmax(), falls, low, made), strict=True))


def phases_of_mixes(curves: Table) -> Table:
    """Phases of every mix, a row each."""
    return pd.DataFrame({policy: phases(curves, policy) for policy in MIXES}).T


def is_around(gaps: Table, stated: float) -> bool:
    """Whether a mean gap rounds to the stated one, and no member is 0.01 or more away from it."""
    return bool(round(gaps.mean(), 2) == stated and (gaps - stated).abs().max() < 0.01)


def last_above(curves: Table, limit: float) -> list[float]:
    """Last point before the rebound at which each selected mix saves more, percent of demand."""
    def saves_more(rows: Table) -> Table:
        return (rows["saving_percent"] > limit) & (rows.index < 0.92)

    return [100 * where(curves, policy, saves_more).max() for policy in SELECTED]


def power_of_fgd(evaluation: Table, watts: Table) -> dict[str, Any]:
    """What FGD draws along the demand, and what the cluster draws idle and busy."""
    fgd = default_curves(evaluation).loc["fgd"]
    share = fgd["gpu_w"] / fgd["eopc_w"] * 100
    state = watts.set_index(["power", "state"])["eopc_w"]
    return {"package_kw": state["package", "idle"] / 1000, "eq1_kw": state["eq1", "idle"] / 1000,
            "peak_mw": fgd["eopc_w"].max() / 1e6, "busy_mw": state["eq1", "busy"] / 1e6,
            "least": share.min(), "most": share.max()}


def savings_of_mixes(evaluation: Table) -> dict[str, Any]:
    """Phases of the mixes, what fails in them, and how their savings and services compare."""
    curves = default_curves(evaluation)
    saving, grar = (curves[name].unstack("policy") for name in ("saving_percent", "grar"))
    ends = phases_of_mixes(curves)
    unfailing, fails = [], []
    for policy, end in ends.iterrows():
        begins, low = saving.loc[end["fall begins"], policy], saving.loc[end["fall ends"], policy]
        first_fails = min(serves_all_until(curves, str(policy)), end["fall ends"])
        unfailing.append(100 * (begins - saving.loc[first_fails, policy]) / (begins - low))
        fails.append([curves.loc[(who, end["rebound ends"]), "failed"]
                      - curves.loc[(who, end["fall ends"]), "failed"] for who in (policy, "fgd")])
    served = grar[["fgd", *MIXES]].iloc[1:]
    plateau = saving.loc[0.15:0.8]
    behind = plateau[MIXES[:4]].rsub(plateau["pwr"], axis=0).mean()
    return {"ends": "; ".join(f"{of.min():.3f} to {of.max():.3f}" for _, of in ends.items()),
            "apart": (ends - PHASES).abs().max(axis=None),
            "unfailing": Each(unfailing),
            "rebound": "; ".join(f"{own:.0f} fail, FGD {of_fgd:.0f}" for own, of_fgd in fails),
            "more_often": min(own / max(of_fgd, 1) for own, of_fgd in fails),
            "perfect_percent": 100 * served.index[(served == 1).all(axis=1)].max(),
            "behind": Each(behind),
            "at_half": Each(saving.loc[0.5, MIXES]),
            "at_full": Each(grar.loc[1.0, MIXES]),
            "failed": Each(curves.loc[(policy, 1.0), "failed"] for policy in MIXES)}


def along_alpha(alpha: Table) -> dict[str, Any]:
    """What the mixes serve at full demand, and which of the paper's three another one beats."""
    full = alpha[alpha["x"] == 1.0].set_index("alpha")["grar"]
    mixes = alpha[~alpha["alpha"].isin([0, 1])].set_index("alpha")
    saved = mixes.loc[mixes["x"] == 0.5, "saving_percent"]
    served = mixes.loc[mixes["x"] == 1.0, "grar"]
    beaten = [a for a in (0.05, 0.1, 0.2)
              if ((saved >= saved[a]) & (served > served[a])).any()]
    return {"towards_fgd": Each(full[a] for a in (0.1, 0.05, 0.02, 0.001)),
            "beaten": " and ".join(map(str, beaten)), "num_beaten": len(beaten)}


def savings_of_selected(evaluation: Table) -> dict[str, Any]:
    """Until where the selected mixes save how much, and what the competitors save."""
    curves = default_curves(evaluation)
    saving = curves["saving_percent"].unstack("policy")
    selected = saving[SELECTED]
    above_13, above_5 = sorted(last_above(curves, 13)), sorted(last_above(curves, 5))
    first = max(where(curves, policy, lambda rows: rows["saving_percent"] > 13).min()
                for policy in SELECTED)
    rivals = saving[sorted(COMPETITORS)]
    lead = selected.sub(saving[COMPETITORS].max(axis=1), axis=0).loc[0.005:]
    late = lead.loc[0.01:]
    return {"first_13": 100 * first, "above_13": above_13,
            "lowest": selected.loc[first:above_13[0] / 100].min(axis=None), "above_5": above_5,
            "smallest": selected.loc[0.9:].min(axis=None),
            "rivals": "; ".join(f"{name} {own.max():.2f} % at {own.idxmax():.3f}"
                                for name, own in rivals.items()),
            "most": rivals.max(axis=None),
            "ahead_until": 100 * late.index[(late < 0).any(axis=1)].min(),
            "points_behind": -late.min(axis=None), "lead": lead.min(axis=None)}


def service(evaluation: Table) -> dict[str, Any]:
    """Who serves how much at full demand, from where on something is refused, and who is ahead."""
    curves = default_curves(evaluation)
    grar = curves["grar"].unstack("policy").iloc[1:]
    full = grar.loc[1.0]
    ahead = grar[[*SELECTED, *COMPETITORS]].rsub(grar["fgd"], axis=0)
    shown = grar[["fgd", *SELECTED, *COMPETITORS]]
    to_fgd, to_rest = full["fgd"] - full[FOLLOWERS], full[FOLLOWERS].mean() - full[REST]
    near_end = grar.loc[0.9:]
    short = near_end[SELECTED].rsub(near_end["bestfit"], axis=0)
    over = near_end[SELECTED].sub(near_end[REST].max(axis=1), axis=0)
    return {"fgd": full["fgd"], "least_ahead": ahead.loc[1.0].min(),
            "ahead_from": 100 * (ahead.index[(ahead <= 0).any(axis=1)].max() + 0.005),
            "to_fgd": Each(to_fgd), "mean_to_fgd": full["fgd"] - full[FOLLOWERS].mean(),
            "is_2_percent": is_around(to_fgd, 0.02),
            "to_rest": Each(to_rest), "mean_to_rest": full[FOLLOWERS].mean() - full[REST].mean(),
            "is_1_percent": is_around(to_rest, 0.01),
            "is_in_order": full[FOLLOWERS].min() > full[REST].max(),
            "below": 100 * shown.index[(shown < 1).any(axis=1)].min(),
            "felt": 100 * shown.index[(shown < 0.999).any(axis=1)].min(),
            "random": grar.loc[0.85, "random"],
            "perfect": Each(100 * serves_all_until(curves, policy) for policy in SELECTED),
            "as_much": Each(100 * (short <= 0).mean()), "short": short.max(axis=None),
            "better": Each(100 * (over > 0).mean()), "under": -over.min(axis=None),
            "always_from": 100 * (over <= 0).any(axis=1)[::-1].idxmax() + 0.5}


CLAIMS: tuple[Claim, ...] = (
    *section(
        power_of_fgd, (EVALUATION, POWER),
        Row("VI-A", "EOPC of FGD starts just above 200 kW",
            "{package_kw:.1f} kW as the code counts, {eq1_kw:.1f} kW by Eq. 1",
            lambda n: graded(n.eq1_kw < 210, True),
            "idle watts of Table II plus idle CPUs; with these tables it cannot be less"),
        Row("VI-A", "it peaks at about 1.4 MW", "{peak_mw:.3f} MW",
            lambda n: graded(round(n.peak_mw, 1) == 1.4),
            "of {busy_mw:.3f} MW with every processor in use"),
        Row("VI-A", "GPUs draw between 72 % and 76 % of it", "{least:.1f} % to {most:.1f} %",
            lambda n: graded(72 <= n.least and n.most <= 76))),
    *section(
        savings_of_mixes, (EVALUATION,),
        Row("VI-B", "five phases, ending at 0.15, 0.8, 0.9, 0.93", "{ends}",
            lambda n: graded(n.apart <= 0.015, True),
            "all phases, in this order; the rebound comes and ends later"),
        Row("VI-B", "phase 3, the fall, does not come with failures",
            "{unfailing:.0f} % of the fall are over before the first task fails " + EACH,
            lambda n: graded(min(n.unfailing) > 50),
            "its end does: the paper says no *immediate* worsening"),
        Row("VI-B", "phase 4, the rebound, is due to failures", "{rebound} " + EACH,
            lambda n: graded(n.more_often > 5)),
        Row("VI-B", "GRAR is 1 for all up to about 88 %", "up to {perfect_percent:.1f} %",
            lambda n: graded(abs(n.perfect_percent - 88) < 1)),
        Row("VI-B", "alpha > 0.2 closely follows PWR, alpha <= 0.2 saves slightly less",
            "behind PWR on the plateau by {behind:.2f} points (0.05, 0.1, 0.2, 0.5)",
            lambda n: graded(abs(n.behind[3]) < 0.1 < min(n.behind[:3])),
            "0.2 goes with PWR during the gain"),
        Row("VI-B", "the first group has a slightly worse GRAR",
            "at full demand {at_full:.4f} " + EACH,
            lambda n: graded(max(n.at_full[3:]) < min(n.at_full[:3])))),
    *section(
        along_alpha, (ALPHA,),
        Row("VI-B", "beyond alpha = 0.05, towards FGD, GRAR stops improving",
            "{towards_fgd:.4f} (0.1, 0.05, 0.02, 0.001)",
            lambda n: graded(n.towards_fgd[0] <= n.towards_fgd[1] >= max(n.towards_fgd[2:]),
                             n.towards_fgd[1] >= max(n.towards_fgd[2:])),
            "it stops at 0.1 already; FGD itself, alpha = 0, is far above all mixes"),
        Row("VI-B", "the best compromises are 0.05, 0.1 and 0.2",
            "{beaten} of them serve less and save no more than another mix",
            lambda n: graded(n.num_beaten == 0, n.num_beaten < 3),
            "0.1 has the largest GRAR of all mixes")),
    *section(
        savings_of_mixes, (EVALUATION,),
        Row("VI-B", "more weight on PWR saves more, away from saturation",
            "at half load {at_half:.2f} % " + EACH,
            lambda n: graded(sorted(n.at_half) == list(n.at_half), True),
            "two levels, up to 0.2 and above, rather than a slope"),
        Row("VI-B", "and fails earlier near saturation",
            "failed tasks at full demand {failed:.0f} " + EACH,
            lambda n: graded(sorted(n.failed) == list(n.failed), True),
            "true from 0.1 on; 0.05 fails more than 0.1")),
    *section(
        savings_of_selected, (EVALUATION,),
        Row("VI-C1", "savings exceed 13 % until about 80 %",
            "from {first_13:.0f} % until {above_13[0]:.1f} to {above_13[2]:.1f} %",
            lambda n: graded(n.above_13[0] > 77.5 and n.lowest > 13),
            "before that the saving is still growing"),
        Row("VI-C1", "then stay above about 5 % until about 90 %",
            "until {above_5[0]:.1f} to {above_5[2]:.1f} %; later {smallest:.1f} % or more",
            lambda n: graded(n.above_5[0] > 88.5)),
        Row("VI-C1", "the competitors never exceed 5 %", "{rivals}",
            lambda n: graded(n.most <= 5, n.most < 5.5),
            "each comes within 0.15 points of 5 % once, BestFit from above; DotProd's peak is "
            "power of refused tasks"),
        Row("VI-C1", "the mixes outperform the competitors over the whole interval",
            "ahead until {ahead_until:.0f} %; then {points_behind:.2f} points behind at most",
            lambda n: graded(n.lead >= 0, True),
            "the one that overtakes is DotProd, by refusing more tasks")),
    *section(
        service, (EVALUATION,),
        Row("VI-D1", "plain FGD has the best GRAR", "{fgd:.4f} at full demand",
            lambda n: graded(n.least_ahead > 0),
            "ahead of each other policy from {ahead_from:.1f} % on; before that all but "
            "serve everything"),
        Row("VI-D1", "BestFit and the mixes follow, around 2 % behind",
            "{mean_to_fgd:.4f} on average ({to_fgd:.4f})",
            lambda n: graded(n.is_2_percent and n.is_in_order), "each by 2.4 to 2.7 points"),
        Row("VI-D1", "the remaining competitors around 0.01 behind those",
            "{mean_to_rest:.4f} on average ({to_rest:.4f})",
            lambda n: graded(n.is_1_percent, n.is_in_order),
            "DotProd twice as far as the other two"),
        Row("VI-D1", "GRAR worsens only beyond 85 %, visibly beyond 90 %",
            "below 1 from {below:.1f} %, below 0.999 from {felt:.1f} %",
            lambda n: graded(n.below > 85 and n.felt > 90),
            "random placement, left out of the figure, is at {random:.3f} at 85 % already"),
        Row("VI-D, goal 1", "the mixes have a perfect GRAR over most of the interval",
            "up to {perfect:.1f} %", lambda n: graded(min(n.perfect) > 85),
            "the savings up to there are no refused work"),
        Row("VI-D, goal 3", "the mixes are better than or on par with BestFit",
            "serve as much at {as_much:.0f} % of the points in [0.9, 1]; "
            "behind by {short:.4f} at most",
            lambda n: graded(min(n.as_much) > 90, n.short < 0.005),
            "BestFit is a little ahead nearly everywhere"),
        Row("VI-D, goal 4", "the mixes consistently outperform the remaining competitors",
            "serve more at {better:.0f} % of the points in [0.9, 1]; behind by {under:.4f} at most",
            lambda n: graded(min(n.better) == 100, min(n.better) > 50),
            "not where almost nothing is refused yet; from {always_from:.1f} % on always")))
