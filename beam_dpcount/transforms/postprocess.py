"""What releases may be turned into at no cost: top items, averages, sliding sums, repairs.

A release is private already, so whatever is computed from releases and public parameters alone is
too, under the same budget. None of these transforms looks at anything else. They do change errors:
each says what `stddev` means after it. Those that look at several releases are in `dofns.folds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import numpy.typing as npt
from apache_beam import typehints
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpcount.budget.conversions import positive
from beam_dpcount.checks import check_choice, check_texts, check_whole
from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.counters.sliding import difference_variance
from beam_dpcount.counters.total import Total
from beam_dpcount.dofns.folds import (
    Difference,
    Fold,
    FoldEach,
    FoldGroup,
    IsotonicPast,
    IsotonicSeries,
    ShrunkKeys,
    TopOfKeys,
    TopOfShown,
    Whole,
    step_of,
    top_items,
)
from beam_dpcount.dofns.releases import Release, TopRelease, VectorRelease
from beam_dpcount.mechanisms import Sparse, Unbounded
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.mechanisms.fading import FadingBLT
from beam_dpcount.mechanisms.workload import LastSteps
from beam_dpcount.plans.counting import PATHS
from beam_dpcount.statistics.items import MOST_STATE
from beam_dpcount.transforms.inputs import in_windows, once_per_window
from beam_dpcount.transforms.ticks import TickNumbers

FloatArray = npt.NDArray[np.float64]


def running_average(release: Any, counter: LatticeCounter | None = None) -> Any:
    """A release of sums divided by its step, with its stddev; see RunningAverage."""
    step = release.step if counter is None else step_of(release, counter)
    value = _each(release.value, lambda x: x / step)
    return release._replace(value=value, stddev=release.stddev / step)


def non_negative(release: Any) -> Any:
    """A release with 0 in place of negative values."""
    return release._replace(value=_each(release.value, lambda x: max(x, 0.0)))


def rounded(release: Any, unit: float) -> Any:
    """A release with values rounded to multiples of `unit`, halves to even."""
    return release._replace(value=_each(release.value, lambda x: float(round(x / unit) * unit)))


def _each(value: Any, function: Any) -> Any:
    """Of the value of a Release, or of every value of a VectorRelease."""
    return function(value) if isinstance(value, float | int) else [function(x) for x in value]


class OneRelease(beam.PTransform[Any, Any]):
    """A function of one release."""

    takes: tuple[Any, ...] = (Release, VectorRelease)
    hint = ""  # what else to use, where releases are of the other kind
    gives: Any = None  # the type that comes in

    def __init__(self) -> None:  # its label is given by >>, as anywhere
        super().__init__()

    def _function(self, release: Any) -> Any:
        raise NotImplementedError

    def _checked(self, release: Any) -> Any:
        # By its fields: a worker that knows the schema only decodes it as a class of its own.
        if getattr(release, "_fields", None) not in (Release._fields, VectorRelease._fields):
            raise TypeError(
                f"elements must be releases, but one is a {type(release).__name__}: apply "
                f"{type(self).__name__} to what a count gives out"
            )
        return self._function(release)

    def expand(self, releases: PCollection[Any]) -> PCollection[Any]:
        declared = _declared(releases, self.takes, self.hint)
        made: Any = beam.Map(self._checked).with_output_types(self.gives or declared)
        return releases | type(self).__name__ >> made


class FoldedReleases(beam.PTransform[Any, Any]):
    """A fold: in state, or over whole groups."""

    takes: tuple[Any, ...] = (Release, VectorRelease)
    hint = ""
    gives: Any = None

    def __init__(self, fold: Whole, path: str) -> None:
        super().__init__()
        self._fold, self._path = fold, check_choice("path", path, PATHS)

    def expand(self, releases: PCollection[Any]) -> PCollection[Any]:
        declared = _declared(releases, self.takes, self.hint)
        fold, group = self._fold, self._fold.group
        streaming = self._streams(releases)
        key = int if group == "step" else str
        keyed: Any = beam.Map(lambda release: (getattr(release, group), release))
        pairs = releases | "Key" >> keyed.with_output_types(typehints.KV[key, declared])
        given = self.gives or declared
        if isinstance(fold, Fold) and streaming:
            return pairs | "FoldEach" >> beam.ParDo(FoldEach(fold)).with_output_types(given)
        function = releases.windowing.windowfn
        groups = once_per_window(pairs, function) | "GroupByKey" >> beam.GroupByKey()
        made = groups | "FoldGroup" >> beam.ParDo(FoldGroup(fold)).with_output_types(given)
        in_windows(made, function)
        return made

    def _streams(self, releases: PCollection[object]) -> bool:
        return _is_streaming(releases, self._path)


def _is_streaming(releases: PCollection[object], path: str) -> bool:
    """Whether releases are taken as they come, or a ValueError where none of the paths will do."""
    if path == "bounded" and not releases.is_bounded:
        problem = 'path="bounded" on an unbounded input would wait for its end'
        raise ValueError(f'{problem}: use path="auto" or path="streaming"')
    return path == "streaming" or not releases.is_bounded


_USE_TOP_K = ": use TopK"
_FROM = "give them in their order, or the transform that counts them"


def _declared(releases: PCollection[Any], takes: tuple[Any, ...], hint: str = "") -> Any:
    """The type of the releases, or a TypeError where it is declared and none of these."""
    declared: Any = releases.element_type
    if declared in (None, typehints.Any):
        return Any
    if declared not in takes:
        names = " or ".join(kind.__name__ for kind in takes)
        said = hint if declared in (Release, VectorRelease) else ""
        raise TypeError(f"elements must be of type {names}, but they are {declared}{said}")
    return declared


class TopK(OneRelease):
    """The k items of the largest counts, of every release of a histogram.

    PCollection[VectorRelease] -> PCollection[TopRelease]. Ties go by the order of the labels.
    `stddev` stays that of every single count; those on top were chosen for being large, so they
    are biased upwards, and it does not say how likely the order is right.

    Args:
      k: how many items, from 1 to the number of labels.
      labels: what the values of a release count, in their order; or the transform that makes the
        releases, such as a Histogram.

    Guarantee: post-processing; costs nothing.

    Raises:
      ValueError, TypeError: an argument is out of range, or the input is declared to hold something
        else; in the pipeline, where a release does not have one value for each item.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> count = dp.Histogram(dp.ZCDP(0.5), 1000, ["login", "logout"])
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("/home", "login")])
      ...     top = events | count | dp.post.TopK(1, count)
      ...     _ = top | beam.Map(lambda r: print(r.step, len(r.items)))
      1 1
    """

    takes = (VectorRelease,)
    gives = TopRelease
    hint = ": for counts of keys use TopKPerTick"

    def __init__(self, k: int, labels: Sequence[str] | Any) -> None:
        super().__init__()
        given = getattr(labels, "labels", labels)
        self._labels = check_texts("labels", given, "label", _FROM)
        self._k = check_whole("k", k, len(self._labels))

    def _function(self, release: Any) -> Any:
        return top_items(release, self._k, self._labels)


class TopKPerTick(beam.PTransform[Any, Any]):
    """The k keys of the largest counts at every step, once all keys have released it.

    PCollection[Release] -> PCollection[TopRelease] with the key "". For counts of a public set of
    keys that all release every step, as with ticks; a step that some key never releases gives
    nothing. Releases of other keys are left out. Of several releases of one key and step, the last
    to come before the step is complete counts. `timestamp` is the latest of the step's, and
    `stddev` the largest. Ties and bias are as for TopK.

    Args:
      k: how many keys, from 1 to the number of keys.
      keys: a sequence of distinct str; or the TickCount that makes the releases. One that selects
        keys has no list: then the k largest of the keys that are shown at a tick, or all where they
        are fewer; a tick without any gives nothing. Ties go by key. Streaming, it takes a clock of
        whole milliseconds.
      path: "auto" (default) follows `is_bounded` of the input; "streaming" keeps the incomplete
        steps in state, (len(keys) + 1) numbers each; "bounded" groups by step.

    Guarantee: post-processing; costs nothing.

    Raises:
      ValueError, TypeError: an argument is out of range, or the input is declared to hold something
        else, or is unbounded under path="bounded".

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> clock = dp.Clock("1m", start=0, ticks=1)
      >>> named = {"keys": ["login", "logout"], "key": "action", "time": "at"}
      >>> count = dp.TickCount(dp.ZCDP(0.1), clock, **named)
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([{"action": "login", "at": 30}])
      ...     top = events | count | dp.post.TopKPerTick(1, count)
      ...     _ = top | beam.Map(lambda r: print(r.step, len(r.items)))
      1 1
    """

    def __init__(self, k: int, keys: Sequence[str] | Any, path: str = "auto") -> None:
        super().__init__()
        given = keys
        if isinstance(keys, beam.PTransform):
            given = getattr(keys, "domain", getattr(keys, "keys", keys))
        if isinstance(given, Total):
            raise ValueError(
                "TopKPerTick ranks keys, and a count of TOTAL has one: give the TickCount "
                "keys=[...] or keys=dp.SelectKeys()"
            )
        if isinstance(given, SelectKeys):
            self._top: FoldedReleases | _TopOfShown = _TopOfShown(check_whole("k", k), keys, path)
        else:
            listed = check_texts("keys", given, "key", _FROM)
            self._top = _TopOfListed(TopOfKeys(check_whole("k", k, len(listed)), listed), path)

    def expand(self, releases: PCollection[Any]) -> PCollection[Any]:
        return self._top.expand(releases)


class _TopOfListed(FoldedReleases):
    """Of the keys of a domain, each of which has a release at every tick."""

    takes = (Release,)
    gives = TopRelease
    hint = _USE_TOP_K


class _TopOfShown(beam.PTransform[Any, Any]):
    """Of the keys that are shown at a tick; streaming, once the watermark has passed it."""

    def __init__(self, k: int, count: Any, path: str) -> None:
        super().__init__()
        self._k, self._count, self._path = k, count, check_choice("path", path, PATHS)

    def expand(self, releases: PCollection[Any]) -> PCollection[Any]:
        declared = _declared(releases, (Release,), _USE_TOP_K)
        streaming, function = _is_streaming(releases, self._path), releases.windowing.windowfn
        # By the end of the tick: windows of ticks are told apart by it.
        keyed: Any = beam.Map(lambda release: (release.timestamp, release))
        pairs = releases | "Key" >> keyed.with_output_types(typehints.KV[int, declared])
        top: Any = beam.ParDo(TopOfShown(self._k)).with_output_types(TopRelease)
        if streaming:
            ticks = beam.WindowInto(self._count.tick_windows())
            made = pairs | "Ticks" >> ticks | "GroupByKey" >> beam.GroupByKey() | "Top" >> top
            return made | "Window" >> beam.WindowInto(releases.windowing)
        made = once_per_window(pairs, function) | "GroupByKey" >> beam.GroupByKey() | "Top" >> top
        in_windows(made, function)
        return made


class RunningAverage(OneRelease):
    """The average over all elements, or ticks, so far: a release, and its stddev, over its step.

    PCollection of Release or VectorRelease -> the same. For prefix sums as released, not for what
    comes out of SlidingSum, NonNegative and the like. `stddev` stays exact; values are on no
    lattice.

    Args:
      counter: the counter of the transform that made the releases, read after applying it. Needed
        in windows, as each window has its own average. Default: averages since the first step.

    Guarantee: post-processing; costs nothing: the number of elements, or ticks, is public.

    Raises:
      ValueError: when applied without a counter in windows other than the global one.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("/home", 1), ("/home", 0)])
      ...     releases = events | dp.PrefixCount(dp.ZCDP(0.5), 1000) | dp.post.RunningAverage()
      ...     _ = releases | beam.Map(lambda r: print(r.key, r.step))
      /home 1
      /home 2
    """

    def __init__(self, counter: LatticeCounter | None = None) -> None:
        super().__init__()
        if counter is not None:
            _check_counter(counter)
        self._counter = counter

    def expand(self, releases: PCollection[Any]) -> PCollection[Any]:
        function = releases.windowing.windowfn
        if self._counter is None and not isinstance(function, GlobalWindows):
            raise ValueError(
                "at a clock steps continue from window to window, but averages do not: give "
                "RunningAverage(count.counter), with the counter of the transform that made the "
                "releases, read after applying it"
            )
        return super().expand(releases)

    def _function(self, release: Any) -> Any:
        return running_average(release, self._counter)


class SlidingSum(FoldedReleases):
    """The sum over the last `window` elements, or ticks: release t minus release t - window.

    PCollection of Release or VectorRelease -> the same; value is the sum over the last
    min(t, window) elements, and stddev its own exact standard deviation (`difference_variance`;
    noise that both releases share cancels). Unbiased. A step whose partner is missing gives
    nothing, nor does a release that comes after a later one on the streaming path.

    For one window alone a TickCount at `clock.last(n)` (per element `mechanisms.SlidingBLT`) has
    less noise: at rho = 1/2 a largest variance of 4.2, 9.5 and 16.9 for 10, 100 and 1000 ticks,
    where this has 12.6, 19.3 and 26.0 of 2^16 ticks, and more of longer streams. This is better for
    several windows, or counts beside them, under one budget; for keys that nobody listed; and for
    windows of nearly the whole stream (docs/choosing.md has a table).

    Args:
      window: how many elements, or ticks, from 1; public.
      counter: that of the transform that made the releases, as it is after applying it.
      path: "auto" (default) follows `is_bounded` of the input; "streaming" keeps the last
        `window` releases of each key in one cell of state (8 bytes a number; at most 10^6 numbers),
        which every element rewrites; "bounded" groups by key.

    Guarantee: post-processing; costs nothing. One element counts in `window` sums, all of them
      differences of the same private prefix sums, which are under one budget.

    Raises:
      ValueError, TypeError: as for TopKPerTick, and where the counter does not release prefix sums,
        or has no exact variance of differences (`Sparse`; mechanisms of your own beyond 4096
        steps), or the state would exceed 10^6 numbers. In the pipeline, where a release's stddev is
        not the counter's.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> count = dp.PrefixCount(dp.ZCDP(0.5), 1000)
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("/home", 1), ("/home", 0)])
      ...     releases = events | count | dp.post.SlidingSum(10, count.counter)
      ...     _ = releases | beam.Map(lambda r: print(r.key, r.step))
      /home 1
      /home 2
    """

    def __init__(self, window: int, counter: LatticeCounter, path: str = "auto") -> None:
        window = check_whole("window", window)
        _check_counter(counter)
        _check_prefix_sums(counter, "whose differences are not sliding sums")
        horizon = counter.horizon
        if horizon is not None:
            window = min(window, horizon)  # there is nothing before the first element
        kept = window * (counter.dimension or 1)
        if kept > MOST_STATE:
            raise ValueError(
                f"a window of {window} steps keeps {kept} numbers a key, and at most {MOST_STATE} "
                "can be rewritten at every element: give a smaller window, or count at ticks"
            )
        if horizon is None or horizon > 1:
            difference_variance(counter, 2, 1)  # refuses what has none
        super().__init__(Difference(window, counter), path)


def _check_counter(counter: object) -> None:
    if not isinstance(counter, LatticeCounter):
        raise TypeError(f"counter must be that of a transform, e.g. count.counter, got {counter!r}")


def _check_prefix_sums(counter: LatticeCounter, problem: str) -> None:
    """Raise ValueError for what is released of other workloads."""
    mechanism = counter.mechanism
    base = mechanism.of_epoch(0) if isinstance(mechanism, Unbounded) else mechanism
    if isinstance(base, Mechanism) and not base.workload.is_prefix_sums:
        given = f"{base.name} releases {base.workload}"
        remedy = "leave out momentum and decay"
        if isinstance(base.workload, LastSteps):
            remedy = "give the counter of a count, such as a TickCount of the clock itself"
        elif isinstance(base, FadingBLT):  # which is made for them
            remedy = "give the counter of a count, such as a TickCount or PrefixCount"
        raise ValueError(f"{given}, {problem}: {remedy}")


def _check_rising(counter: LatticeCounter, use: str) -> None:
    """Raise ValueError where exact counts may fall or be negative, or errors are not known."""
    _check_prefix_sums(counter, f"which {use} does not take, as they may fall")
    if isinstance(counter.mechanism, Sparse):
        raise ValueError(f"releases of Sparse have no stddev, which {use} weighs them by")
    low = counter.change.low
    if low < 0:
        counted = f"what an element adds may be negative (down to {low:g}: bounds, or removals)"
        raise ValueError(f"{use} is for counts that never fall, but {counted}: leave it out")


class NonNegative(OneRelease):
    """0 in place of negative values.

    PCollection of Release or VectorRelease -> the same. `stddev` stays that of the noise before:
    values are now biased (too large where the count is about 0), with smaller errors than it says.

    Guarantee: post-processing; costs nothing.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("/home", 1), ("/home", 0)])
      ...     releases = events | dp.PrefixCount(dp.ZCDP(0.5), 1000) | dp.post.NonNegative()
      ...     _ = releases | beam.Map(lambda r: print(r.value >= 0))
      True
      True
    """

    def _function(self, release: Any) -> Any:
        return non_negative(release)


class Isotonic(FoldedReleases):
    """Counts that never fall, from releases that do: the nearest series by weighted squares.

    PCollection of Release or VectorRelease -> the same; each coordinate by itself. Releases are
    weighted by 1 / stddev^2, and nothing is below 0. `stddev` stays that of a release's noise
    before. Over the past values are biased upwards, on real streams by 0.3 to 0.4 stddevs of a
    release. Root mean square errors there (docs/choosing.md) were
    0.89 to 0.95 times those of the releases over the past, 0.49 to 0.77 over the series; where most
    counts are about 0, NonNegative alone gains more than over the past.

    - over="past" gives after each release the last value of the regression of all so far: the
      best that is then known. It may fall: 5, 1 gives 5, 3.
    - over="series" gives the regression of all releases of a key and window, once they are all
      there: it never falls, and 5, 1 gives 3, 3. Its weighted sum of squared errors is at most
      that of the releases, whatever the noise was, as the exact series is one that never falls.

    Args:
      counter: that of the transform that made the releases, as it is after applying it.
      over: "past" (default) or "series", which is for bounded input.
      blocks: over the past, how many stretches of equal values of a coordinate are kept, from 2;
        beyond, the two oldest become one, of their mean. Values then are those of the nearest
        series that is constant over what was merged: at most what all would give, and the same
        unless a release falls below the mean of the oldest stretch.
      path: "auto" (default) follows `is_bounded` of the input; "streaming" keeps at most
        2 * blocks + 1 numbers a key and coordinate in state, and takes releases in the order in
        which they come: one that comes after a later one, or again, gives nothing; "bounded"
        groups by key and sorts by step.

    Guarantee: post-processing; costs nothing.

    Source: pool adjacent violators [ABERS55].

    Raises:
      ValueError, TypeError: as for TopKPerTick; where elements may add less than 0 (negative
        bounds, removals, statistics that fall), or there are momentum and decay, or Sparse;
        over="series" on unbounded input or under path="streaming"; or where a key's state would
        exceed 10^6 numbers. In the pipeline, where a release's stddev is not the counter's.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> count = dp.PrefixCount(dp.ZCDP(0.5), 1000)
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("/home", 1), ("/home", 0)])
      ...     releases = events | count | dp.post.Isotonic(count.counter)
      ...     _ = releases | beam.Map(lambda r: print(r.key, r.step, r.value >= 0))
      /home 1 True
      /home 2 True
    """

    def __init__(
        self, counter: LatticeCounter, over: str = "past", blocks: int = 64, path: str = "auto"
    ) -> None:
        _check_counter(counter)
        self._over = check_choice("over", over, ("past", "series"))
        check_whole("blocks", blocks)
        if blocks < 2:
            raise ValueError(f"blocks must be at least 2, got {blocks}")
        _check_rising(counter, "Isotonic")
        if over == "series":
            if path == "streaming":
                raise ValueError(_SERIES)
            super().__init__(IsotonicSeries(counter), path)
            return
        kept = (2 * blocks + 1) * (counter.dimension or 1)
        if kept > MOST_STATE:
            raise ValueError(
                f"{blocks} blocks keep {kept} numbers a key, and at most {MOST_STATE} can be "
                "rewritten at every element: give fewer"
            )
        super().__init__(IsotonicPast(counter, blocks), path)

    def _streams(self, releases: PCollection[object]) -> bool:
        if self._over == "series" and not releases.is_bounded:
            raise ValueError(_SERIES)
        return super()._streams(releases)


_SERIES = 'over="series" needs all releases at once, which a stream never has: use over="past"'


class ShrinkAcrossKeys(FoldedReleases):
    """Counts of many keys at a tick, each moved to where those of the others are.

    PCollection[Release] -> PCollection[Release]: all keys of a step at once, in the order of the
    domain, when the last of them is there. For counts of a public set of keys that all release
    every step, as with ticks; a step that some key never releases gives nothing, and releases of
    other keys are left out.

    The keys' exact counts are taken as draws from one distribution, which is fitted to their
    releases at that step and the known noise by maximum likelihood; a value is the mean of what
    the release may then have come from (empirical Bayes). None is negative.

    **Each key is biased**, for a smaller error over all keys: towards the counts that most keys
    have, which is towards 0 where most have few events. Keys that stand out come out too low, and
    all the more the fewer like them there are; keys of few events too high. So it is for the
    picture of all keys, and not for comparing a few of them, nor for sums over keys. `stddev`
    stays that of a release's noise before, and says nothing of the bias. On a real
    stream of 1,899 keys the root mean square error fell from 10.4 to 7.3 at epsilon 1, and from 90
    to 37 at epsilon 0.1; there the 20 largest counts came out too low by 0.6 and 49
    (docs/choosing.md).

    Args:
      count: the TickCount that makes the releases, of one number, with keys that are listed, as it
        is after applying it.
      path: "auto" (default) follows `is_bounded` of the input; "streaming" keeps the incomplete
        steps in state, (number of keys + 1) numbers each; "bounded" groups by step.

    Guarantee: post-processing; costs nothing. A key's value depends on all keys' releases, which
      are private together, under one budget.

    Source: [KW56] for the fit, [JZ09] for what is made of it.

    Raises:
      ValueError, TypeError: as for TopKPerTick; where values may be negative, or keys are selected:
        those that are shown were chosen for being large, which no fit to them knows. In the
        pipeline, where a release's stddev is not the counter's.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> clock = dp.Clock("1m", start=0, ticks=1)
      >>> named = {"keys": ["login", "logout"], "key": "action", "time": "at"}
      >>> count = dp.TickCount(dp.ZCDP(0.1), clock, **named)
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([{"action": "login", "at": 30}])
      ...     shrunk = events | count | dp.post.ShrinkAcrossKeys(count)
      ...     _ = shrunk | beam.Map(lambda r: print(r.key, r.step, r.value >= 0))
      login 1 True
      logout 1 True
    """

    takes = (Release,)

    def __init__(self, count: object, path: str = "auto") -> None:
        count = getattr(count, "transform", count)  # that of "Name" >> count
        count = getattr(count, "numbers", None) or count
        if not isinstance(count, TickNumbers):
            wanted = "TickCount of one number that makes the releases"
            raise TypeError(f"count must be the {wanted}, got {count!r}")
        if isinstance(count.keys, SelectKeys):
            problem = "keys that nobody listed are shown for being large"
            remedy = "list the keys, or leave ShrinkAcrossKeys out"
            raise ValueError(f"{problem}, so that a fit to them is of large ones only: {remedy}")
        _check_rising(count.counter, "ShrinkAcrossKeys")
        keys = check_texts("keys", count.keys, "key", "count listed keys")
        super().__init__(ShrunkKeys(count.counter, keys), path)


class Rounded(OneRelease):
    """Values rounded to multiples of a unit, halves to even.

    PCollection of Release or VectorRelease -> the same. `stddev` stays that of the noise before
    rounding, which adds at most unit / 2 to an error.

    Args:
      unit: positive, in the values' units.

    Guarantee: post-processing; costs nothing.

    Raises:
      ValueError, TypeError: unit is not a positive, finite number.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("/home", 1), ("/home", 0)])
      ...     releases = events | dp.PrefixCount(dp.ZCDP(0.5), 1000) | dp.post.Rounded(10)
      ...     _ = releases | beam.Map(lambda r: print(r.value % 10))
      0.0
      0.0
    """

    def __init__(self, unit: float = 1) -> None:
        super().__init__()
        self._unit = positive("unit", unit, "give e.g. unit=1")

    def _function(self, release: Any) -> Any:
        return rounded(release, self._unit)
