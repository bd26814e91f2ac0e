"""Comparisons of all mechanisms with each other, and with the least error that is possible."""

from __future__ import annotations

import beam_dpcount as dp
from beam_dpcount.budget.budgets import Budget
from benchmarks.papers import base
from benchmarks.papers.base import HALF, VARIANCE, Output, Row, Series
from benchmarks.papers.optimal import mathias_floor, optimal_factorization

_BUDGETS: dict[str, Budget] = {
    "pure": dp.PureDP(1.0),
    "approximate": dp.ApproxDP(1.0, 1e-6),
    "zcdp": dp.ZCDP(0.5),
}


def members(quick: bool) -> list[Row]:
    """Exact largest standard deviation of every mechanism against T, for three budgets."""
    horizons = [round(2 ** (e / 2)) for e in (range(4, 33, 4) if quick else range(2, 41))]
    rows = []
    for name, budget in _BUDGETS.items():
        for horizon in base.progress(horizons, f"members, {budget}"):
            rows += [
                {
                    "budget": name,
                    "mechanism": row.mechanism.name,
                    "noise": type(row.counter.law).__name__,
                    "horizon": horizon,
                    "max_stddev": row.max_stddev,
                    "mean_stddev": row.mean_stddev,
                    "state_size": row.state_size,
                }
                for row in dp.choose(horizon, budget).rows
            ]
    return rows


def members_pictures(rows: list[Row]) -> list[Output]:
    """One for each budget; a mechanism looks the same in all, so absent ones hold their place."""
    axes = ("horizon T (steps)", "largest standard deviation (counts)")
    footer = "Exact, with each mechanism's default parameters and the better of its noise laws."
    pictures = []
    for name, budget in _BUDGETS.items():
        taking = base.curves(base.select(rows, budget=name), "mechanism", "horizon", "max_stddev")
        names = [kind.__name__ for kind in dp.mechanisms.ALL]
        series: Series = {n if n in taking else f"({n})": taking.get(n, [[], []]) for n in names}
        said = footer + " In brackets: does not take this budget." * (len(taking) < len(series))
        texts = (f"Largest error of a release: {budget}", *axes, said)
        pictures.append(base.picture(series, *texts, f"-{name}", logx=True, logy=True))
    return pictures


def members_headline(rows: list[Row]) -> str:
    """The best at the longest horizon."""
    horizon = max(row["horizon"] for row in rows)
    parts = []
    for name, budget in _BUDGETS.items():
        own = base.select(rows, budget=name, horizon=horizon)
        best = min(own, key=lambda row: row["max_stddev"])
        parts.append(f"{best['mechanism']} {best['max_stddev']:.4g} for {budget}")
    return f"least largest standard deviation at T = {horizon:,}: " + "; ".join(parts)


_ENDLESS = dp.mechanisms.Endless.__name__
_OPTIMAL = "best factorization"
_FLOOR = "Mathias's lower bound"
_DENSE = 512  # the most steps for which the best factorization is computed
_TABLE = (10, 16, 20)  # log2 of the horizons of the short table


def floor(quick: bool) -> list[Row]:
    """Exact largest variance of every mechanism against T, rho = 1/2, and the least possible."""
    rows = []
    endless = dp.calibrate(dp.mechanisms.Endless(), HALF)
    for log in base.progress(range(4, 21, 2 if quick else 1), "floor"):
        horizon = 1 << log
        counters = [row.counter for row in dp.choose(horizon, HALF).rows]
        variances = {counter.mechanism.name: counter.max_variance() for counter in counters}
        variances[_ENDLESS] = float(endless.stddevs(horizon).max()) ** 2
        if horizon <= _DENSE:
            variances[_OPTIMAL] = optimal_factorization(horizon).error
        variances[_FLOOR] = least = mathias_floor(horizon)
        rows += [
            {
                "mechanism": name,
                "horizon": horizon,
                "largest_variance": variances[name],
                "times_floor": variances[name] / least,
            }
            for name in (*(kind.__name__ for kind in dp.mechanisms.ALL), _ENDLESS, _OPTIMAL, _FLOOR)
            if name in variances
        ]
    return rows


def floor_outputs(rows: list[Row]) -> list[Output]:
    """All in one, those near the floor in its multiples, and a table of some horizons."""
    names = base.distinct(rows, "mechanism")
    multiples = base.curves(rows, "mechanism", "horizon", "times_floor")
    absent = ", ".join(k.__name__ for k in dp.mechanisms.ALL if k.__name__ not in names)
    binned = base.select(rows, mechanism="Binned")[-1]["horizon"]
    footer = (
        "Exact, not measured, at horizons that are powers of two. The best factorization is dense, "
        f"hence up to {_DENSE} steps; Binned is slow to calibrate, hence up to {binned:,}. "
        f"{_ENDLESS} does not know T: its first T releases."
    )
    title = "Largest variance of a release: rho = 1/2 (zCDP)"
    short = []
    for name in names:
        at = {row["horizon"]: row["largest_variance"] for row in base.select(rows, mechanism=name)}
        if any(1 << log in at for log in _TABLE):
            short.append({"mechanism": name} | {f"2^{log}": at.get(1 << log, "") for log in _TABLE})
    variances = base.curves(rows, "mechanism", "horizon", "largest_variance")
    left_out = f" Not shown, as no zCDP budget calibrates it: {absent}." * bool(absent)
    texts = (title, "horizon T (steps)", "largest " + VARIANCE, footer + left_out)
    near = {name: line for name, line in multiples.items() if line[1][-1] < 2}
    ratio = (f"{title}, over the lower bound", texts[1], "largest variance / Mathias's lower bound")
    return [
        base.picture(variances, *texts, logx=True, logy=True, base=2),
        base.picture(near, *ratio, footer, "-near", logx=True, base=2),
        base.table(short, "-table"),
    ]


def floor_headline(rows: list[Row]) -> str:
    """How far the best is from the floor, and from the best factorization."""
    horizon = max(row["horizon"] for row in rows)
    ranked = sorted(base.select(rows, horizon=horizon), key=lambda row: row["largest_variance"])
    bound, best = ranked[0], ranked[1]
    dense = base.select(rows, mechanism=_OPTIMAL)[-1]
    same = base.select(rows, mechanism=best["mechanism"], horizon=dense["horizon"])[0]
    return (
        f"at T = {horizon:,} {best['mechanism']} {best['largest_variance']:.4g}, "
        f"{best['times_floor']:.3f} x {bound['mechanism']}; at T = {dense['horizon']} "
        f"{same['largest_variance'] / dense['largest_variance']:.3f} x the {_OPTIMAL}"
    )
