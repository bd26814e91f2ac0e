"""Every public transform, usual events for it, and others that it may meet: bad, late, unlisted.

Where noise is scripted, neighbours have the same, so that what differs was not hidden by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

import beam_dpcount as dp
from beam_dpcount.statistics import Words
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import SECOND, Row
from tests.scripted import ScriptedEntropy
from tests.sentences import counted
from tests.side_doors import SECRET

BUDGET = dp.ZCDP(0.5)
NAN = math.nan


class Odd:
    """A value whose every use but showing it fails, each time with what it holds."""

    def _fail(self, *_: Any) -> Any:
        raise ValueError(SECRET)

    __float__ = __iter__ = __len__ = __hash__ = __eq__ = __str__ = _fail  # type: ignore[assignment]


class Unshowable:
    """A value that cannot be compared, hashed, iterated nor added."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError(SECRET)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "Unshowable()"


class Shut(type):
    """A class that fails if it is asked whether it is one of rows, with what it holds."""

    def __getattr__(cls, name: str) -> Any:
        # Pickles and Beam's types ask for other names, before an event is here.
        if name not in ("_fields", "__dataclass_fields__"):
            raise AttributeError(name)
        raise RuntimeError(SECRET)

    def __instancecheck__(cls, _: Any) -> bool:
        raise RuntimeError(SECRET)

    def __subclasscheck__(cls, _: Any) -> bool:
        raise RuntimeError(SECRET)


class Hidden(metaclass=Shut):
    """A value of such a class."""

    def __repr__(self) -> str:
        return SECRET


# The transforms, and events that one of them may meet


@dataclass(frozen=True)
class Elements:
    """Of a transform that releases after every element.

    Fields:
      make: of options.
      usual: the values of a key's elements, five or more.
      others: what any one of them may be instead.
    """

    make: Callable[..., Any]
    usual: Sequence[Any]
    others: Sequence[Any]


def graph(kind: Any, *arguments: Any, **options: Any) -> Callable[..., Any]:
    return lambda **more: kind(BUDGET, 4, 5, *arguments, **options, **more)


EDGES = [(0, 1), (0, 2), (1, 2), (3, 4), (2, 3)]
BAD_EDGES = [
    (0, 9),
    (1, 1),
    (1, 0),
    (0, 1, -1),
    (0, 2, 99),
    (0,),
    "01",
    None,
    NAN,
    SECRET,
    Odd(),
    Hidden(),
]
EACH_ELEMENT: dict[str, Elements] = {
    "PrefixCount": Elements(
        lambda **o: dp.PrefixCount(BUDGET, 4, bounds=(0, 2), **o),
        [1, 0, 2, 1, 1],
        [9, -9, 1e300, math.inf, 0.5, NAN, None, SECRET, Odd(), Hidden()],
    ),
    "Histogram": Elements(
        lambda **o: dp.Histogram(BUDGET, 4, ["a", "b", "c"], max_items=2, **o),
        ["a", "b", ["a", "b"], "a", "c"],
        [
            "z",
            ["a", "z"],
            ["a", "b", "c"],
            ["a", "a"],
            [],
            "",
            7,
            NAN,
            None,
            SECRET,
            Odd(),
            Hidden(),
        ],
    ),
    "SubstringCount": Elements(
        lambda **o: dp.SubstringCount(BUDGET, 4, ["a", "b"], 2, **o),
        [*"abbab"],
        ["b", "z", "", "ab", 7, NAN, None, SECRET, Odd(), Hidden()],
    ),
    "EpisodeCount": Elements(
        lambda **o: dp.EpisodeCount(BUDGET, 4, ["a", "b"], 2, **o),
        [*"abbab"],
        ["b", "z", "", "ab", 7, NAN, None, SECRET, Odd(), Hidden()],
    ),
    "StatisticCount": Elements(
        lambda **o: dp.StatisticCount(BUDGET, 4, Words("ab", 2), **o),
        [*"abbab"],
        ["z", "", 7, NAN, None, SECRET, Odd(), Hidden()],
    ),
    "EdgeCount": Elements(graph(dp.EdgeCount, max_degree=1), EDGES, BAD_EDGES),
    "TriangleCount": Elements(graph(dp.TriangleCount, max_degree=2), EDGES, BAD_EDGES),
    "KStarCount": Elements(graph(dp.KStarCount, 2, max_degree=2), EDGES, BAD_EDGES),
    "HighDegreeCount": Elements(graph(dp.HighDegreeCount, 2, max_degree=2), EDGES, BAD_EDGES),
    "DegreeHistogram": Elements(graph(dp.DegreeHistogram, max_degree=2), EDGES, BAD_EDGES),
    "SpanningForestCost": Elements(
        graph(dp.SpanningForestCost, 3, max_degree=2), EDGES, [(0, 1, 3), (0, 1, 4), *BAD_EDGES]
    ),
    "CutGraph": Elements(graph(dp.CutGraph), EDGES, [(0, 1, 0.5), (0, 1, 2), *BAD_EDGES]),
}
# Of a public clock of four ticks of 10 seconds. One event more, or of another content.
KEYED: list[Row] = [("a", 1, 5 * SECOND), ("b", 1, 15 * SECOND), ("a", 2, 31 * SECOND)]
MORE: list[Row] = [
    ("a", 1, 6 * SECOND),  # a sum that is clipped
    ("a", 9, 25 * SECOND),  # a number that is
    ("a", -9, 25 * SECOND),
    ("c", 1, 5 * SECOND),  # the first of its key
    *(("a", bad, 5 * SECOND) for bad in (NAN, math.inf, None, SECRET, Odd(), Hidden())),
    (SECRET, 1, 5 * SECOND),
    (None, 1, 5 * SECOND),
    ("a", 1, -5),
    ("a", 1, 40 * SECOND),
    ("a", 1, 10**15),
]
CLOCK: dict[str, Any] = {"tick": 10, "start": 0, "horizon": 4, "max_per_tick": 1}
ABC = ("a", "b", "c")
LATE = ("fold", "drop")


def ticks(**options: Any) -> TickNumbers:
    given = {"bounds": (0, 2), "entropy": ScriptedEntropy(), "keys": ABC, **CLOCK, **options}
    return TickNumbers(BUDGET, **given)


# Of whom all events are.
ONE_PERSON = dp.Users(lambda value: "p", 2, per_key=1)


def people(**options: Any) -> dp.TickCount:
    given = {"entropy": ScriptedEntropy(), "keys": ABC, **CLOCK, **options}
    return counted(BUDGET, dp.People(), users=ONE_PERSON, **given)


def last(**options: Any) -> dp.TickCount:
    given = {"entropy": ScriptedEntropy(), "keys": ABC, **CLOCK, **options}
    return counted(BUDGET, dp.Sum(low=0, high=2), last=2, **given)


def vectors(**options: Any) -> dp.TickCount:
    metrics = [
        dp.Count(),
        dp.Sum("n", 0, 2),
        dp.Mean("n", 0, 2),
        dp.Variance("n", 0, 2),
        dp.Quantiles("n", 0, 2, [0.5], leaves=4),
        dp.People(),
        dp.Rate("n > 1"),
        dp.Items("n", ["1", "2"], max_items=2),
    ]
    given = {"entropy": ScriptedEntropy(), "keys": ABC, **CLOCK, **options}
    return counted(BUDGET, metrics, users=ONE_PERSON, **given)


def sentence(**options: Any) -> dp.TickCount:
    """Two views of two things, which are joined."""
    clock = dp.Clock(CLOCK["tick"], CLOCK["start"], CLOCK.get("horizon"), CLOCK.get("stop"))
    views = [clock, clock.each()]
    given = {"entropy": ScriptedEntropy(), "keys": ABC, "users": ONE_PERSON, **options}
    return dp.TickCount(BUDGET, views, [dp.Count(), dp.Mean("n", 0, 2)], **given)


FIELDS: list[Row] = [(key, {"n": n}, micros) for key, n, micros in KEYED]
MORE_FIELDS: list[Row] = [
    *((key, {"n": n}, micros) for key, n, micros in MORE),
    *(
        ("a", bad, 5 * SECOND)
        for bad in (1, None, SECRET, Odd(), Hidden(), {}, {"m": 1}, {1: SECRET})
    ),
]


# One of two texts a leaf, so that releases are 12 as those of three keys.
TREE = dp.Hierarchy(["leaf"], [("a",), ("b",)])


def tree(**options: Any) -> dp.TickCount:
    given = {"entropy": ScriptedEntropy(), "keys": TREE, **CLOCK, **options}
    return counted(BUDGET, dp.Sum(low=0, high=2), **given)


LEAVES: list[Row] = [((key,), n, micros) for key, n, micros in KEYED]
MORE_LEAVES: list[Row] = [
    *(((key,), n, micros) for key, n, micros in MORE),
    *(
        (bad, 1, 5 * SECOND)
        for bad in ("a", (), ("a", "b"), ("",), ["a"], (NAN,), (7,), None, SECRET, Odd(), Hidden())
    ),
]


@beam.ptransform_fn
def one_of_bound(events: Any, **options: Any) -> Any:
    counts = {"count": ticks(value=lambda value: value, **options), "people": people(**options)}
    return (events | dp.BoundUsers(ONE_PERSON, counts))["count"]


EACH_TICK: dict[str, tuple[Callable[..., Any], list[Row], list[Row]]] = {
    "TickCount": (ticks, KEYED, MORE),
    "people": (people, KEYED, MORE),
    "last": (last, KEYED, MORE),
    "vectors": (vectors, FIELDS, MORE_FIELDS),
    "BoundUsers": (one_of_bound, KEYED, MORE),
    "sentence": (sentence, FIELDS, MORE_FIELDS),
    "tree": (tree, LEAVES, MORE_LEAVES),
}


def hinge(x: Any, points: Any) -> Any:
    if isinstance(x, str):
        raise AttributeError(SECRET)
    return [NAN] * len(points) if x is None else [max(-1, min(1, 4 * (p - x))) for p in points]


def no_text(x: Any) -> Any:
    if isinstance(x, str):
        raise RuntimeError(SECRET)
    return x


LOCAL: dict[str, Callable[[], Any]] = {
    "LocalMedian": lambda: dp.local.LocalMedian(BUDGET, 4, value=no_text),
    "LocalConvexRisk": lambda: dp.local.LocalConvexRisk(BUDGET, 4, gradient=hinge),
}
CLIENTS = [0.1, 0.4, 0.4, 0.9, 0.2, 0.3, 0.5, 0.6, 0.7]
OTHER_CLIENTS = [7, -7, math.inf, NAN, None, SECRET, Odd(), Hidden(), [0.1]]


def after(kind: Any, path: str) -> Any:
    """A count whose releases go through a post-processing transform."""
    options = {"path": path, "entropy": ScriptedEntropy()}
    if kind is dp.post.TopK:
        counted = dp.Histogram(BUDGET, 4, ABC, **options)
        return beam.MapTuple(lambda key, x: (key, "abc"[x % 3])) | counted | kind(2, counted)
    if kind is dp.post.LastPerTick:
        return dp.PrefixCount(BUDGET, 4, bounds=(0, 2), **options) | kind(20)
    count = ticks(path=path)
    if kind is dp.Alarm:  # so low a level that each key has one alarm, at its first tick
        clock = dp.Clock(10, start=0, ticks=4)
        alike = dp.TickCount(
            *(BUDGET, clock, dp.Sum(low=0, high=2)), keys=ABC, value=lambda x: x, **options
        )
        return alike | dp.Alarm(alike, -1e12, path=path)
    arguments: dict[Any, tuple[Any, ...]] = {
        dp.post.SlidingSum: (2, count.counter, path),
        dp.post.TopKPerTick: (2, ABC, path),
        dp.post.Isotonic: (count.counter, "past", 2, path),
        dp.post.ShrinkAcrossKeys: (count, path),
    }
    return count | kind(*arguments.get(kind, ()))


AFTER = {
    "Alarm": dp.Alarm,
    "Isotonic": dp.post.Isotonic,
    "LastPerTick": dp.post.LastPerTick,
    "NonNegative": dp.post.NonNegative,
    "Rounded": dp.post.Rounded,
    "RunningAverage": dp.post.RunningAverage,
    "ShrinkAcrossKeys": dp.post.ShrinkAcrossKeys,
    "SlidingSum": dp.post.SlidingSum,
    "TopK": dp.post.TopK,
    "TopKPerTick": dp.post.TopKPerTick,
}

# Of the same, keys that nobody listed, none of which is shown.
SELECT = dp.SelectKeys(delta=1e-9, shards=3)
SELECTED: dict[str, tuple[Callable[..., Any], list[Row], list[Row]]] = {
    "TickCount": (lambda **o: ticks(keys=SELECT, **o), KEYED, MORE),
    "people": (lambda **o: people(keys=SELECT, **o), KEYED, MORE),
    "vectors": (lambda **o: vectors(keys=SELECT, **o), FIELDS, MORE_FIELDS),
    "at_least": (
        lambda **o: ticks(keys=dp.SelectKeys(delta=1e-9, at_least=2), **o),
        KEYED,
        MORE,
    ),
}
