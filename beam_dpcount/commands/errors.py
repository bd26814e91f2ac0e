"""The errors to expect, before any data: at which steps, of all releases, and what is visible.

For counts after every row (--horizon) or at the ticks of a clock (--ticks), by the mechanism that
they would take. With --relation, --bounds, --unit, --max-per-tick and the limits on people as they
will be there. Noise does not depend on data: nothing is read, and nothing spent.
With --metric or --view, as `ticks` takes them, it says how far off each column is for made-up
rows: --events N of them, or of each of --people P. --want 5% says from how many rows on, and from
which budget on, all columns are as near as that.
It is for `count`, and `ticks` with --keys. For all else (--select-keys, --gap, `histogram`,
`sequences`, `graph`) give the command itself --dry-run: it says its errors, counts nothing, and
spends nothing.
A rule of thumb: counts below some ten standard deviations are unreliable. --visible N says which
budget would bring a count of N up to that.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import beam_dpcount as dp
from beam_dpcount.arguments.argument import parsed
from beam_dpcount.arguments.table import ARGUMENTS, Changes, applying
from beam_dpcount.budget.budgets import Budget, weakness
from beam_dpcount.checks import check_whole
from beam_dpcount.commands import changes
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.report import (
    LEVEL,
    VISIBLE,
    Estimate,
    errors,
    many,
    rule_of_thumb,
    table,
)
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.choose import resolve
from beam_dpcount.counters.counter import Counter, calibrate

EXAMPLE = "beam-dpcount errors --horizon 20000 --epsilon 1 --delta 1e-6 --visible 500"
_POINTS = 200  # of a picture
_LARGEST = 1e6  # no budget beyond it is tried
# Options of commands that count.
_DRY = {
    f"--{name}": "give the command that counts itself, with its options and --dry-run"
    for name in (
        *("input", "output", "key", "user", "tick", "start", "stop", "gap"),
        *("select-keys", "select-delta", "select-every", "at-least"),
        *("item", "domain", "fit-total", "letter", "edge", "vertices", "what"),
        *("where", "value", "timestamp", "separator", "every", "dry-run"),
    )
}


OWN = (
    *changes.STEPS,
    *(
        replace(one, group="count", applies="")
        for one in ARGUMENTS
        if one.repeats or one.name == "prefer"
    ),
    *parsed(
        "count",
        """
        events N: whole, example=1000
            with --metric, --view or --want: how many rows a release is of, as you expect; with
            --people, of each person
        people P: whole, example=500
            how many people they are of
        """,
    ),
    *parsed(
        "count",
        """
        keys N: whole, default=1, example=3
            how many keys there are (default 1), and not which: the largest error is over all
            ! say how many there are, e.g. {}
        replays: switch
            for streaming runs and replayable noise, where work is done again
        """,
    ),
    *parsed(
        "said",
        f"""
        visible N: positive, example=13
            the least budget of this kind at which a count of N is {VISIBLE} standard deviations, at
            the noisiest release
        want SHARE: part, example=5%
            with --events: from how many rows on, and from which budget on, half of the 95 %
            interval of each column is within this share: of a count or sum, or of the range of
            other numbers
        plot PNG: path
            draw the errors over the steps
        """,
    ),
)
_CHANGES: Changes = {
    "user": None,
    "per_user": {"help": "protect a person of whom at most K rows count, in all keys together"},
    "mechanism": {
        "help": "as for the commands that count; default: the one of least largest error"
    },
}


def arguments() -> opt.Parser:
    taken = applying("calibrated numbers people", OWN, _CHANGES)
    covers = "all releases of one key (--ticks, --per-user: of all keys) together"
    titles = {"budget": f"privacy budget, for {covers}"}
    return opt.Parser("errors", __doc__, EXAMPLE, taken, titles)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; mistakes in the options are ValueErrors or TypeErrors."""
    options = arguments().parse_ours(argv, _DRY)
    budget = opt.budget_of(options)
    if options.metric or options.view or options.want or options.events or options.people:
        from beam_dpcount.commands import sizing  # here: it imports Beam, and --help does not

        with opt.named_as_options(options):
            said = sizing.lines(options, budget)
        print(*([f"warning: {weak}"] if (weak := weakness(budget)) else []), *said, sep="\n")
        return
    steps = changes.steps_of(options)
    _check_plot(options.plot)
    with opt.named_as_options(options):
        check_whole("keys", options.keys)
        change = changes.change_of(options)

        def calibrated(budget: Budget) -> Counter:
            named = resolve(
                options.mechanism,
                *(steps, budget, change),
                unit=options.unit,
                replays=options.replays,
            )
            made: Counter = calibrate(named, budget, change, unit=options.unit)
            return made

        counter = changes.amply(options, calibrated(budget))
    if weak := weakness(budget):
        print(f"warning: {weak}")
    what = "horizon" if options.ticks is None else "ticks"
    print(f"{budget}, {what} {steps:,}, {change}")
    if options.ticks is not None:
        print(f"up to {counter.change.most:,} events of each tick count (--max-per-tick)")
    print(table(counter))
    print()
    releases = many(steps * options.keys, "release")
    print(errors(counter, Estimate(), f"the largest error of all {releases}", options.keys))
    print(rule_of_thumb(counter))
    if options.visible is not None:
        print(visible(budget, options.visible, calibrated))
    if options.plot:
        draw(counter, options.plot, change, options.keys)
        print(f"picture: {options.plot}")


def _check_plot(path: str | None) -> None:
    if path is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("--plot needs matplotlib: pip install 'beam-dpcount[plots]'")
    if not path.endswith(".png"):
        raise InputError(f"--plot must end in .png, got {path!r}")


def visible(budget: Budget, count: float, calibrated: Callable[[Budget], Counter]) -> str:
    """Which budget makes a count visible, in words."""
    least = least_budget(budget, count, calibrated)
    if least is None:
        return f"A count of {count:g} is visible at no budget: values are coarser than that."
    stddev = math.sqrt(calibrated(least).max_variance())
    said = (
        f"A count of {count:g} is visible (ten standard deviations of {stddev:.3g}) from {least} "
        f"on, beside {budget} here."
    )
    weak = weakness(least)
    return f"{said} That is a {weak}" if weak else said


def least_budget(
    budget: Budget, count: float, calibrated: Callable[[Budget], Counter]
) -> Budget | None:
    """The least budget of this kind, of three digits, at which `count` is visible.

    It is found by bisection over budgets of three digits, and so exact; None where there is none.
    """
    name = "rho" if isinstance(budget, dp.ZCDP) else "epsilon"

    def of(place: int) -> Any:
        """The budgets of three digits, in their order."""
        power, digits = divmod(place, 900)
        given: Any = budget
        return replace(given, **{name: float(f"{100 + digits}e{power - 2}")})

    def enough(place: int) -> bool:
        return VISIBLE**2 * calibrated(of(place)).max_variance() <= count**2

    here = getattr(budget, name)
    power = math.floor(math.log10(here))
    low = high = 900 * power + min(899, max(0, math.floor(here / 10.0**power * 100) - 100))
    while not enough(high):
        low, high = high, high + 300
        if getattr(of(high), name) > _LARGEST:
            return None
    while low == high or enough(low):
        if getattr(of(low), name) < 1 / _LARGEST:
            return of(low)
        high, low = low, low - 300
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return of(high)


def draw(counter: Counter, path: str, change: Change, keys: int) -> None:
    """The errors over the steps, as a picture."""
    from beam_dpcount.commands.figures import series  # here: matplotlib is an extra

    horizon = counter.mechanism.horizon
    exponents = [math.log10(horizon) * i / _POINTS for i in range(_POINTS + 1)]
    steps = sorted({min(horizon, max(1, round(10**e))) for e in exponents})
    stddevs = [math.sqrt(counter.variance(step)) for step in steps]
    every = dp.largest_error(counter, keys, LEVEL)
    ten = VISIBLE * math.sqrt(counter.max_variance())
    lines = {
        "standard deviation": (steps, stddevs),
        "95 % of releases at a step": (
            steps,
            [dp.half_width(counter, step, LEVEL) for step in steps],
        ),
        "all releases, with 95 %": ([1, horizon], [every, every]),
        "rule of thumb: unreliable below": ([1, horizon], [ten, ten]),
    }
    series.lines(
        lines,
        path,
        xlabel="step",
        ylabel="error of a private count",
        title=f"Errors to expect: {counter.budget}, {counter.mechanism.name}",
        logx=True,
        footer=f"Of the noise, for {many(horizon, 'step')} of {many(keys, 'key')}; neighbours "
        f"under {change}. {rule_of_thumb(counter)}",
    )
