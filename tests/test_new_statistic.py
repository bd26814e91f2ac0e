"""A statistic is one file: that of CONTRIBUTING.md is taken from there, proved and counted with."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.mechanisms import BinaryTree, Simple2, SmoothBinary
from beam_dpcount.statistics import Words
from beam_dpcount.statistics.items import Items
from beam_dpcount.statistics.numbers import Numbers
from tests.neighbours import Alternating, neighbours, through
from tests.runners import feed, run
from tests.scripted import ScriptedEntropy

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
NAME = "repeats_of_the_page"
LETTERS = ("a", "b")


@pytest.fixture
def repeats() -> Iterator[Any]:
    """The statistic of the page, in a module that can be pickled by its name."""
    page = PAGE.read_text("utf-8")
    (code,) = re.findall(r"<!-- statistics/repeats.py -->\n```python\n(.*?)```", page, re.S)
    module = sys.modules[NAME] = ModuleType(NAME)
    try:
        exec(compile(code, str(PAGE), "exec"), module.__dict__)
        yield module.__dict__["Repeats"](LETTERS)
    finally:
        del sys.modules[NAME]


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("kind", [Simple2, BinaryTree, SmoothBinary, Alternating])
def test_its_sensitivity_holds_for_all_neighbours(repeats: Any, relation: str, kind: Any) -> None:
    mechanism = kind(5)
    x, other = neighbours(repeats, len(LETTERS), 5, relation)
    largest = through(mechanism, x - other).max()
    claimed = float(repeats.change(relation).norms(mechanism, 1, None)[1])
    assert largest <= claimed * (1 + 1e-12)
    assert np.abs(x - other).sum(axis=(1, 2)).max() == 2
    if kind is BinaryTree:  # not much too large either
        assert largest >= claimed / 2
    if (kind, relation) == (Alternating, "replace_one"):
        assert largest == pytest.approx(claimed)  # and no smaller bound would do


@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_it_is_counted_in_pipelines(repeats: Any, path: str) -> None:
    letters = "aabbxbbbaa"
    rows = [("k", letter, micros) for micros, letter in enumerate(letters)]
    count = dp.StatisticCount(
        dp.ZCDP(0.5), 100, repeats, path=path, entropy=ScriptedEntropy(0), every=2
    )
    released = run(lambda p: p | feed(rows) | count).releases
    known = [a if a in LETTERS else None for a in letters]
    same = [a is not None and a == b for a, b in zip(known[1:], known, strict=False)]
    expected = [sum(same[: step - 1]) for step in range(2, 11, 2)]
    assert [r.step for r in released] == [2, 4, 6, 8, 10]
    assert [r.value for r in released] == pytest.approx(expected, abs=1e-4)
    assert all(r.stddev > 0 for r in released)


def test_what_it_calls_its_own_unit_is_not_that_of_the_noise() -> None:
    @dataclass(frozen=True)
    class InMinutes(Numbers):
        seconds: float = 60.0

    @dataclass(frozen=True)
    class Steps(Words):
        unit: float = 60.0

    words = dp.StatisticCount(dp.PureDP(1), 9, Words("ab", 1), mechanism="Simple1")
    steps = dp.StatisticCount(dp.PureDP(1), 9, Steps("ab", 1), mechanism="Simple1")
    assert steps.counter.law == words.counter.law
    assert steps.counter.unit == 1

    @dataclass(frozen=True)
    class Others(Items):
        pass

    items = Items(("a", "b"))
    assert Others(("a", "b")).noise_parameters("c") != items.noise_parameters("c")
    plain, made = Numbers(0, 1, 1), InMinutes(0, 1, 1)
    assert plain.noise_parameters("c") == "c"
    assert made.noise_parameters("c") not in ("c", InMinutes(0, 1, 1, 5.0).noise_parameters("c"))


def test_numbers_of_numpy_are_plain_ones() -> None:
    """Else values were divided in their precision: 365 made 522 steps where 521 were noised."""
    bounds, unit = (np.float32(0), 365), np.float16(0.7)
    count = dp.PrefixCount(dp.PureDP(1), 9, bounds=bounds, unit=unit, mechanism="Simple1")
    plain = dp.PrefixCount(
        dp.PureDP(1), 9, bounds=(0.0, 365.0), unit=float(unit), mechanism="Simple1"
    )
    assert count.counter.fingerprint == plain.counter.fingerprint
    assert ascii(count.statistic) == ascii(plain.statistic)
    (most,), _ = count.statistic.read(365)
    assert most == count.counter.change.magnitude(count.counter.unit)


@pytest.mark.parametrize("path", ["bounded", "streaming"])
@pytest.mark.parametrize("kind", ["PrefixCount", "Histogram"])
def test_every_few_steps_have_the_releases_that_all_have(kind: str, path: str) -> None:
    rows = [("k", letter, micros) for micros, letter in enumerate("abbabaa")]
    made = {
        "PrefixCount": lambda **o: dp.PrefixCount(dp.ZCDP(0.5), 9, value=len, **o),
        "Histogram": lambda **o: dp.Histogram(dp.ZCDP(0.5), 9, LETTERS, **o),
    }[kind]
    found = [
        run(lambda p, n=n: p | feed(rows) | made(path=path, entropy=ScriptedEntropy(), every=n))
        for n in (1, 3)
    ]
    every, few = (sorted(outcome.releases, key=lambda r: r.step) for outcome in found)
    assert len(every) == 7
    assert few == [every[2], every[5]]


def test_it_takes_every_mechanism_and_says_what_an_event_changes(repeats: Any) -> None:
    for kind in mechanisms.ALL:
        budget = dp.PureDP(1) if "gaussian" not in kind(64).laws else dp.ZCDP(0.5)
        count = dp.StatisticCount(budget, 64, repeats, mechanism=kind)
        assert math.isfinite(count.counter.variance(64))
    assert "Repeats(letters=('a', 'b'))" in count.annotations()["beam_dpcount:statistic"]
    with pytest.raises(ValueError, match="relation must be one of"):
        dp.StatisticCount(dp.ZCDP(0.5), 64, repeats, relation="edge")
