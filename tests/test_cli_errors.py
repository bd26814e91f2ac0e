"""errors: its figures are those of the counts; the least budget is the least; nothing is read."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

import beam_dpcount as dp
from beam_dpcount.commands import changes, errors, report
from beam_dpcount.commands import options as opt
from beam_dpcount.mechanisms import BinaryTree
from beam_dpcount.transforms.ticks import TickNumbers
from tests.command_lines import PNG, fail, succeed
from tests.command_lines import command as run

BUDGET = ("--epsilon", "1", "--delta", "1e-6")


def say(*words: object) -> str:
    return succeed(*words, main=errors.main)


def test_the_figures_are_those_of_the_count() -> None:
    out = say(*BUDGET, "--horizon", 1234, "--mechanism", "binarytree")
    counter = dp.PrefixCount(dp.ApproxDP(1.0, 1e-6), 1234, mechanism="BinaryTree").counter
    rows = re.findall(r"^ *([\d,]+) +([\d.]+) +([\d.]+)$", out, re.M)
    assert [row[0] for row in rows] == ["1", "10", "100", "1,000", "1,023", "1,234"]
    assert float(rows[-2][1]) == max(float(row[1]) for row in rows)  # the noisiest is among them
    assert rows[-2][1] == f"{max(map(math.sqrt, map(counter.variance, range(1, 1235)))):.4g}"
    for step, stddev, half in rows:
        t = int(step.replace(",", ""))
        assert stddev == f"{math.sqrt(counter.variance(t)):.4g}"
        assert half == f"{dp.half_width(counter, t):.4g}"
    largest = dp.largest_error(counter)
    assert f"the largest error of all 1,234 releases is below {largest:.3g} with" in out
    ten = 10 * max(map(math.sqrt, map(counter.variance, range(1, 1235))))
    assert f"counts below some ten standard deviations, here {ten:.3g}, are unreliable" in out
    assert "replace_one" in out


def calibrated(given: Any) -> Any:
    return dp.calibrate(BinaryTree(24), opt.budget_of(given), changes.change_of(given))


@pytest.mark.parametrize("budget", [BUDGET, ("--epsilon", "1"), ("--rho", "0.05")])
def test_ticks_and_people_are_as_the_transform_has_them(budget: tuple[str, ...]) -> None:
    given = errors.arguments().parse_ours([*budget, "--ticks", "24", "--keys", "3"])
    plain = TickNumbers(dp.PureDP(1.0), 60, 0, horizon=24, keys=["a", "b", "c"])
    assert changes.amply(given, calibrated(given)).change == plain.counter.change
    people = dp.Users(lambda e: e, 7, keys=2, per_key=3)
    words = [*budget, "--ticks", "24", "--keys", "3", "--per-user", "7", "--max-keys", "2"]
    given = errors.arguments().parse_ours([*words, "--per-key", "3"])
    bounded = TickNumbers(
        dp.PureDP(1.0), 60, 0, horizon=24, keys=["a", "b", "c"], users=people, value=lambda e: 1
    )
    assert changes.amply(given, calibrated(given)).change == bounded.counter.change
    given = errors.arguments().parse_ours([*budget, "--horizon", "24", "--per-user", "5"])
    each = dp.PrefixCount(dp.PureDP(1.0), 24, users=dp.Users(lambda e: e, 5), value=lambda e: 1)
    assert changes.change_of(given) == each.counter.change


def test_more_rows_of_a_person_take_more_noise() -> None:
    def largest(*more: object) -> float:
        out = say(*BUDGET, "--ticks", 24, "--keys", 9, "--mechanism", "BinaryTree", *more)
        (found,) = re.findall(r"largest error of all 216 releases is below ([\d.]+)", out)
        return float(found)

    assert largest() < largest("--per-user", 2, "--per-key", 1) < largest("--per-user", 2)


@pytest.mark.parametrize(
    "budget", [dp.ApproxDP(1.0, 1e-6), dp.PureDP(0.02), dp.PureDP(9.99), dp.ZCDP(0.5)]
)
@pytest.mark.parametrize("count", [13.0, 4000.0])
def test_the_least_budget_is_the_least_of_three_digits(budget: Any, count: float) -> None:
    def calibrated(budget: Any) -> Any:
        return dp.calibrate(dp.mechanisms.BinaryTree(1000), budget)

    def stddev(budget: Any) -> float:
        return math.sqrt(calibrated(budget).max_variance())

    least = errors.least_budget(budget, count, calibrated)
    assert least is not None
    assert type(least) is type(budget)
    name = "rho" if isinstance(budget, dp.ZCDP) else "epsilon"
    found = getattr(least, name)
    assert float(f"{found:.3g}") == found
    step = 10.0 ** (math.floor(math.log10(found * (1 + 1e-9))) - 2)
    less = type(budget)(*((found - step,) if name == "rho" or not hasattr(budget, "delta") else
                          (found - step, budget.delta)))  # fmt: skip
    assert 10 * stddev(least) <= count < 10 * stddev(less)


def test_what_makes_a_count_visible() -> None:
    out = say(*BUDGET, "--horizon", 500, "--mechanism", "NormalizedBLT", "--visible", 13)
    (found,) = re.findall(r"A count of 13 is visible .* from epsilon = ([\d.]+), delta", out)
    counter = dp.calibrate(dp.mechanisms.NormalizedBLT(500), dp.ApproxDP(float(found), 1e-6))
    assert 10 * max(map(math.sqrt, map(counter.variance, range(1, 501)))) <= 13
    assert "That is a weak budget" in out


def test_a_count_that_no_budget_shows() -> None:
    class Coarse:
        def max_variance(self) -> float:
            return 1.0

    budget = dp.PureDP(1.0)
    assert errors.least_budget(budget, 5.0, lambda _: Coarse()) is None
    assert "visible at no budget" in errors.visible(budget, 5.0, lambda _: Coarse())
    least = errors.least_budget(budget, 50.0, lambda _: Coarse())
    assert isinstance(least, dp.PureDP)
    assert least.epsilon < 1e-5


def test_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "errors.png"
    out = say(*BUDGET, "--horizon", 50, "--mechanism", "BinaryTree", "--plot", path)
    assert f"picture: {path}" in out
    assert path.read_bytes().startswith(PNG)


def test_steps_that_are_shown() -> None:
    assert report.steps_shown(1) == [1]
    assert report.steps_shown(100) == [1, 10, 100]
    assert report.steps_shown(101) == [1, 10, 100, 101]


def test_options_of_commands_that_count_are_answered_by_their_dry_run() -> None:
    for name in errors._DRY:
        given = (*BUDGET, "--horizon", 9, name, "x")
        said = fail(*given, run=lambda *words: run(*words, main=errors.main))
        assert said == (
            f"error: {name} is not an option here: give the command that counts itself, with its "
            "options and --dry-run\n"
        )
