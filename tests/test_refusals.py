"""Every parameter of every public name takes what it should, or refuses it by its own name.

One walk over the signatures. What is wrong for a parameter follows from its annotation, so a new
transform, mechanism or metric is checked once it is listed in VALID.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount import mechanisms, metrics, statistics
from beam_dpcount.counters.sparse import sparse_for
from beam_dpcount.noise.entropy import SystemEntropy
from beam_dpcount.transforms.ticks import TickNumbers
from tests.public import HOMES

B = dp.ZCDP(0.5)
CLOCK: dict[str, Any] = {"budget": B, "tick": 10, "start": 0, "stop": 30}
PEOPLE = dp.Users("user", 2, per_key=1)
COUNTER = dp.calibrate(mechanisms.BinaryTree(8), B)
ITEMS = ["a", "b"]
ELEMENTS: dict[str, Any] = {"budget": B, "horizon": 8}
EDGES: dict[str, Any] = {**ELEMENTS, "vertices": 4, "max_degree": 2}
NUMBER: dict[str, Any] = {"field": "ms", "low": 0, "high": 5}
DEGREES: dict[str, Any] = {"vertices": 4, "max_degree": 2}
# What dp.TickCount counts with.
ENGINES = {TickNumbers}
# The least that each public name takes.
CLOCK_OF_ALARMS = dp.Clock(10, start=0, ticks=9)
VALID: dict[Callable[..., Any], dict[str, Any]] = {
    dp.PureDP: {"epsilon": 1.0},
    dp.ApproxDP: {"epsilon": 1.0, "delta": 1e-6},
    dp.ZCDP: {"rho": 0.5},
    dp.Ledger: {"budget": B},
    dp.Change: {},
    dp.Clock: {"tick": 10, "start": 0, "ticks": 9},
    dp.SelectKeys: {},
    dp.Hierarchy: {"levels": ["region", "city"], "leaves": [("n", "oslo"), ("s", "rome")]},
    dp.ReplayableEntropy: {"variable": "SECRET", "run_id": "run"},
    dp.Users: {"by": "user", "events": 2},
    dp.BoundUsers: {"users": PEOPLE, "counts": {"a": TickNumbers(**CLOCK, keys=ITEMS, value=len)}},
    dp.PrefixCount: ELEMENTS,
    dp.Histogram: {**ELEMENTS, "domain": ITEMS},
    dp.StatisticCount: {**ELEMENTS, "statistic": statistics.Words(ITEMS, 2)},
    dp.SubstringCount: {**ELEMENTS, "domain": ITEMS, "max_length": 2},
    dp.EpisodeCount: {**ELEMENTS, "domain": ITEMS, "max_length": 2},
    dp.CutGraph: {**ELEMENTS, "vertices": 4},
    dp.DegreeHistogram: EDGES,
    dp.EdgeCount: EDGES,
    dp.HighDegreeCount: {**EDGES, "threshold": 1},
    dp.KStarCount: {**EDGES, "k": 1},
    dp.SpanningForestCost: {**EDGES, "max_weight": 3},
    dp.TriangleCount: EDGES,
    dp.TickCount: {"budget": B, "clock": dp.Clock(10, 0, 3), "keys": ITEMS},
    TickNumbers: {**CLOCK, "keys": ITEMS},
    dp.Alarm: {"count": dp.TickCount(B, CLOCK_OF_ALARMS, keys=[*"abcd"]), "level": 5},
    dp.post.LastPerTick: {"tick": 10},
    dp.local.LocalMedian: {"budget": B, "cells": 4},
    dp.local.LocalConvexRisk: {"budget": B, "cells": 4, "gradient": lambda value, cells: cells},
    dp.post.Isotonic: {"counter": COUNTER},
    dp.post.Rounded: {},
    dp.post.RunningAverage: {},
    dp.post.ShrinkAcrossKeys: {"count": TickNumbers(**CLOCK, keys=[*"abcd"])},
    dp.post.SlidingSum: {"window": 2, "counter": COUNTER},
    dp.post.TopK: {"k": 1, "labels": ITEMS},
    dp.post.TopKPerTick: {"k": 1, "keys": ITEMS},
    dp.calibrate: {"mechanism": mechanisms.BinaryTree(8), "budget": B},
    dp.choose: {"horizon": 8, "budget": B},
    dp.half_width: {"counter": COUNTER, "t": 3},
    dp.largest_error: {"counter": COUNTER},
    dp.largest_half_width: {"counter": COUNTER},
    sparse_for: {"ones": 10, "steps": 1000, "budget": dp.PureDP(1)},
    dp.suggest_bounds: {"rows": [], "count": TickNumbers(**CLOCK, keys=ITEMS)},
    **{each: {"horizon": 8} for each in mechanisms.ALL},
    mechanisms.Endless: {},
    mechanisms.CombBLT: {"horizon": 8, "window": 3},
    mechanisms.DecayedBLT: {"horizon": 8, "decay": 0.5},
    mechanisms.SlidingBLT: {"horizon": 8, "window": 3},
    mechanisms.Differences: {"horizon": 8, "window": 3, "inner": mechanisms.Simple2(8)},
    mechanisms.SingleSteps: {"horizon": 8},
    mechanisms.SlidingBlocks: {"horizon": 8, "window": 3},
    mechanisms.Sparse: {"segment": 3, "segments": 6},
    mechanisms.Unbounded: {"base": mechanisms.BinaryTree},
    metrics.Count: {},
    metrics.Items: {"field": "x", "domain": ITEMS},
    metrics.People: {},
    metrics.Rate: {"where": "x = 1"},
    metrics.Sum: NUMBER,
    metrics.Mean: NUMBER,
    metrics.Variance: NUMBER,
    metrics.Quantiles: NUMBER,
    statistics.CutWeights: {"vertices": 4},
    statistics.Words: {"domain": ITEMS, "max_length": 2},
    statistics.Episodes: {"domain": ITEMS, "max_length": 2},
    statistics.Degrees: DEGREES,
    statistics.Edges: DEGREES,
    statistics.HighDegree: {**DEGREES, "threshold": 1},
    statistics.KStars: {**DEGREES, "k": 1},
    statistics.SpanningForest: {"vertices": 4, "max_weight": 3},
    statistics.Triangles: DEGREES,
}

RESULTS = {
    "Counter",
    "NodeRelease",
    "Rejected",
    "Release",
    "TickRelease",
    "TopRelease",
    "VectorRelease",
}
OTHERS = {"NonNegative"}  # which takes nothing
OTHERS |= {"Mechanism", "Metric", "Statistic"}  # abstract
OTHERS |= {"check"}  # of a transform and rows: test_checking.py
ROWS = {"rows"}  # a parameter that holds data: test_bounds.py
OWN = {"view", "inside"}  # what a TickCount gives its engine

# What each kind of parameter refuses, wherever it is.
FLAG = (1, 0, None, "yes", np.True_)
WHOLE = (0, -1, True, 1.5, math.nan, math.inf, Fraction(1, 2), None, "1", b"1", [1])
NUMBER_ = (0, -1, True, math.nan, math.inf, -math.inf, 10**400, None, "1", b"1", 1j, [1.0])
CHOICE = ("nonsense", "", 5, None, b"max", ["max"])
TEXT = (5, None, True, b"ms", ["ms"])
FUNCTION = ("value", 5, True, [len])
BUDGET = (1.0, None, "ApproxDP", (1.0, 1e-6), dp.PureDP)
NO_TEXTS = (5, None, b"ab", "ab", {"a": 1}, iter("ab"), ["a", 5], [["a"]], [], ["a", "b", "a"])
TEXTS = (*NO_TEXTS, {"a", "b"})
NO_MECHANISM = ("Binary", 3, int, mechanisms.Mechanism, mechanisms.BinaryTree(99))
TIME = (True, math.nan, math.inf, 1e-7, "yesterday", "", 1j, [1], 10**400)
LENGTH = (True, math.nan, math.inf, 1e-7, "yesterday", 1j, [1], 0, -1, "0h")
WORDS = (5, [], "ab", {"ab"}, ["ab", ("a", "b")], [""], [7], ["z"], [("a", 7)])
COUNTERS = (5, "counter", mechanisms.BinaryTree(8), mechanisms.BinaryTree)
MANY = (5, None, "12", b"12", {1: 2}, [0], ["x"], [True], [])
WRONG: dict[str, tuple[Any, ...]] = {
    "bool": FLAG,
    "int": WHOLE,
    "float": NUMBER_,
    "float | Fraction": NUMBER_,
    "Callable[[Any], Any]": FUNCTION,
    "Callable[[Any], Any] | str": FUNCTION,
    "Callable[[Any, FloatArray], Any]": FUNCTION,
    "Callable[[int], Mechanism]": (*FUNCTION, len, lambda n: n, mechanisms.Mechanism),
    "str | Callable[[Any], Any]": (5, None, "", ["user"]),
    "str | os.PathLike[str]": ("key",),
    "Budget": BUDGET,
    "Budget | Share": BUDGET,
    "Sequence[str]": TEXTS,
    "Sequence[str] | SelectKeys": (*TEXTS, dp.SelectKeys),
    "Sequence[str] | SelectKeys | Total": (*TEXTS, dp.SelectKeys, type(dp.TOTAL)),
    "Sequence[str] | Total": TEXTS,
    "Sequence[str] | SelectKeys | Total | Hierarchy": (
        *(*TEXTS, dp.SelectKeys, type(dp.TOTAL)),
        dp.Hierarchy,
    ),
    "str | Sequence[str] | Callable[[Any], Any]": (5, None, "", ["user"]),
    "Iterable[Sequence[str]]": (*NO_TEXTS, [("n", "")], [("n", "oslo")] * 2, [("n",)], [None]),
    "Sequence[str] | Any": TEXTS,
    "Sequence[str | Sequence[str]] | None": WORDS,
    "tuple[str, ...] | None": WORDS,
    "tuple[str, ...]": tuple(wrong for wrong in TEXTS if wrong != "ab"),
    "Vertices": (*TEXTS[1:], 0, 1, -1, True, 1.5, ["a"]),
    "Mechanism | type[Mechanism] | str": NO_MECHANISM,
    "Mechanism | type[Mechanism] | str | Unbounded | Sparse": NO_MECHANISM,
    "type[Mechanism]": (*NO_MECHANISM, None, mechanisms.Sparse),
    "Entropy": (42, "system", SystemEntropy),
    "Users": ("everyone", 5, dp.Users),
    "Mapping[str, object]": (None, [], {}, {1: 2}, "a"),
    "Statistic": (None, "words", statistics.Words),
    "Change": ("replace_one", 5, dp.Change),
    "Counter": (*COUNTERS, None),
    "LatticeCounter": COUNTERS,
    "TickCount | PrefixCount | Histogram": (None, 5, TickNumbers),
    "Clock | Each | Last | Restart | Sequence[Any]": (None, 5, "1h", [], [5], dp.Clock),
    "Metric | Sequence[Metric]": (None, 5, [], "ms", metrics.Count, [metrics.Count]),
    "Sequence[Metric]": (None, 5, [], "ms", [metrics.Count], metrics.Count()),
    "Sequence[float]": (None, "0.5", True, [], [2], [-0.5], [math.nan], ["0.5"], [True]),
    "Sequence[int]": MANY,
    "Sequence[int | None]": MANY,
    "Sequence[object]": (*MANY, ["x"], [math.inf]),
    "int | Sequence[int]": (0, 1, True, 1.5, "5", b"\5", [True], [1.5], ["5"], [1]),
    "tuple[float, float]": (5, None, (0, 1, 2), ("0", 1), (math.nan, 1), (0, math.inf), (1, 0)),
}
# What an annotation does not say, by the parameter's name.
NAMED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["relation", "on_reject", "path", "late", "on_unknown", "prefer"], CHOICE),
    **dict.fromkeys(["objective", "over", "scale"], CHOICE),
    **dict.fromkeys(["field", "name", "run", "run_id", "variable", "other", "column"], TEXT),
    **dict.fromkeys(["tick", "gap", "per", "lateness"], LENGTH),
    "zone": (5, True, "", "Mars", b"UTC", ["UTC"]),
    **dict.fromkeys(["start", "stop", "until"], TIME),
    "mechanism": (5, None, "BinaryTree", mechanisms.BinaryTree),  # of `calibrate`
    "count": (5, None, dp.PrefixCount),
    "inner": (5, None, "BinaryTree", mechanisms.BinaryTree),  # of `Differences`
}
# What is beyond the range of a parameter of VALID.
BEYOND: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["level", "share", "confidence", "c", "tau"], (1, 1.5)),
    **dict.fromkeys(["k", "max_degree", "threshold", "block"], (9,)),
    **dict.fromkeys(["leaves", "shards", "blocks", "cells", "max_length"], (2**20,)),
    **dict.fromkeys(["horizon", "steps", "segments", "streams"], (2**48 + 1,)),
    **dict.fromkeys(["decay", "sample"], (1.5,)),
    "buffers": (99,),
    "delta": (1, 1.0, 1.5),
    "t": (9,),
}
# What is right all the same.
RIGHT = [("low", 0), ("low", -1), ("momentum", 0), ("tau", 0), ("keys_delta", 0), ("name", "")]
RIGHT += [("keys", {"a", "b"}), ("floor", 0)]
# What a message calls a parameter that only the module's own classes have.
INSTEAD = {"words": "max_length"}  # what it stands for
CALLED = {"words": "words?", "bounds": "bounds|low|high"}
REMEDY = re.compile(
    r"\b(must|give|leave|use|take|choose|pass|list|raise|lower|write|add|set|declare|needs?|put)\b"
)
PLACES = [(make, of) for make in VALID for of in inspect.signature(make).parameters.values()]
PLACES = [(make, of) for make, of in PLACES if of.name not in ROWS | OWN]
# An alarm's level is a count, not a probability: tests/test_alarms.py.
PLACES = [(make, of) for make, of in PLACES if (make, of.name) != (dp.Alarm, "level")]


def wrong_for(of: inspect.Parameter) -> list[Any]:
    """What a parameter must refuse; None only if its annotation does not allow it."""
    kind = str(of.annotation)
    plain = kind.removesuffix(" | None")
    wrong = WRONG.get(kind) or WRONG.get(plain) or NAMED[of.name]
    wrong += BEYOND.get(of.name, ())
    if plain != kind or of.default is None:
        wrong = tuple(value for value in wrong if value is not None)
    right = [value for name, value in RIGHT if name == of.name]
    return [value for value in wrong if not any(value is each or value == each for each in right)]


def refusal(make: Callable[..., Any], name: str, value: Any) -> ValueError | TypeError | None:
    """How a parameter refuses a value, all else being valid; None if it takes it."""
    base = {other: one for other, one in VALID[make].items() if other != INSTEAD.get(name)}
    try:
        make(**{**base, name: value})
    except (ValueError, TypeError) as error:
        return error
    return None


def test_every_public_name_is_walked() -> None:
    public = {
        getattr(home, name)
        for home in (*HOMES.values(), metrics, mechanisms, statistics)
        for name in home.__all__
        if name not in RESULTS | OTHERS
    }
    classes = {each for each in public if callable(each)}
    classes -= {each for each in classes if isinstance(each, type) and issubclass(each, Exception)}
    assert classes | ENGINES | {sparse_for} == {*VALID}


@pytest.mark.parametrize("make", VALID, ids=lambda make: make.__name__)
def test_wrong_values_are_refused_by_name(make: Callable[..., Any]) -> None:
    assert make(**VALID[make]) is not None
    for of in (of for each, of in PLACES if each is make):
        for value in wrong_for(of):
            error = refusal(make, of.name, value)
            assert error is not None, f"{make.__name__} takes {of.name}={value!r}"
            named = rf"\b({CALLED.get(of.name, of.name)})\b"
            assert re.search(named, str(error)), (of.name, value, error)
            assert REMEDY.search(str(error)), (of.name, value, error)
            shown = repr(value) if isinstance(value, int | float) else ""
            is_shown = any(text in str(error) for text in (shown, type(value).__name__, "inf"))
            assert is_shown, (of.name, value, error)


anything = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        *(st.binary(max_size=5), st.complex_numbers(), st.decimals(), st.fractions()),
        st.sampled_from([10**400, -(10**400), 2**53, object(), int, len, np.True_, np.int64(3)]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=2),
        st.frozensets(st.integers() | st.text(max_size=3), max_size=3),
    ),
    max_leaves=5,
)


@pytest.mark.long
@settings(max_examples=600, deadline=None, derandomize=True, database=None)
@given(place=st.sampled_from(PLACES), value=anything)
def test_any_value_is_taken_or_refused(
    place: tuple[Callable[..., Any], inspect.Parameter], value: Any
) -> None:
    """By a message that names the parameter, or another one that it does not go with."""
    make, of = place
    names = [CALLED.get(name, name) for name in inspect.signature(make).parameters]
    if (error := refusal(make, of.name, value)) is not None:
        named = rf"\b({'|'.join(names)})\b"
        assert re.search(named, str(error)), (make, of.name, value, error)
        assert REMEDY.search(str(error)), (make, of.name, value, error)
