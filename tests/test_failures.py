"""Failures at every element of a small stream, and a runner that does the work again.

BundleBasedDirectRunner attempts a bundle up to four times, its state and timers rolled back. Under
replayable noise every attempt must write the bytes that an uninterrupted run writes, and make its
releases. Workers that die are in test_crash.py, damaged states in test_coders.py.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing import test_stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.kept import KeptCoder
from beam_dpcount.dofns.ticks import SEED, CountEachTick
from beam_dpcount.noise.entropy import Entropy, SystemEntropy
from beam_dpcount.states import all_ticks, codecs, envelope
from beam_dpcount.states.envelope import OTHER_FORMAT, UPGRADE, StateError
from beam_dpcount.states.pending import placed
from beam_dpcount.transforms import elements
from beam_dpcount.transforms import ticks as tick_transforms
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import Bag
from benchmarks.jobs import dofns_of
from tests.cells import Kept as Outside
from tests.messages import says
from tests.runners import run
from tests.scripted import ScriptedEntropy

VARIABLE = "COUNTING_SECRET"
SECOND = 1_000_000
KEYS = "aababba"
BUDGET = dp.ZCDP(1e-7)  # two draws are equal by chance once in a thousand times, or less

# Each stream: the transform under an entropy, and the payloads of KEYS.
STREAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "PrefixCount": (
        lambda **given: dp.PrefixCount(BUDGET, 9, mechanism="NormalizedBLT", **given),
        [1, 0, 1, 1, "none", 1, 0],
    ),
    "Histogram": (
        lambda **given: dp.Histogram(BUDGET, 9, ["u", "v", "w"], max_items=2, **given),
        ["u", ["v", "w"], "v", "u", [], ["u", "w"], "w"],
    ),
    "SubstringCount": (
        lambda **given: dp.SubstringCount(
            BUDGET, 9, ["u", "v"], 2, mechanism="SmoothBinary", **given
        ),
        list("uvvuvvu"),
    ),
    "TriangleCount": (
        lambda **given: dp.TriangleCount(BUDGET, 9, 5, max_degree=3, **given),
        [(0, 1), (1, 2), (0, 1), (0, 2), (1, 2), (0, 2), (2, 3)],
    ),
    "TickCount": (
        lambda **given: TickNumbers(
            *(BUDGET, 10, 0),
            **{"horizon": 4, "keys": ["a", "b"], "mechanism": "BinaryTree"},
            max_per_tick=2**20,  # part of the parameters that states are pinned with
            **given,
        ),
        [1, 1, 0, 1, 1, 1, 1],
    ),
}
ELEMENTS = [name for name in STREAMS if name != "TickCount"]
each_stream = pytest.mark.parametrize("name", STREAMS)
some_streams = pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("PrefixCount", "TickCount")
        else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in STREAMS
    ],
)


def made(name: str, entropy: Entropy | None = None) -> Any:
    entropy = entropy or dp.ReplayableEntropy(VARIABLE, run_id="failures")
    given: dict[str, Any] = {"path": "streaming", "entropy": entropy}
    if name != "TickCount":
        given |= {"value": itemgetter(0), "element_id": itemgetter(1)}
    return STREAMS[name][0](**given)


def payloads(name: str) -> list[Any]:
    """Of KEYS; with a public id each, where the transform takes one."""
    made = STREAMS[name][1]
    return made if name == "TickCount" else [(payload, i) for i, payload in enumerate(made)]


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0123456789abcdef" * 4)


# DoFns that fail when told to, and what they have done


def packed(data: Any) -> bytes:
    """What a cell is given, as bytes."""
    return KeptCoder().encode(data)


class Watch:
    """Of one run: what was written and released, in attempts that held and in all.

    Attributes:
      live: whether a cell holds what a DoFn gives it until its bundle ends.
      planned: places and positions at which to fail, once each.
      attempt, kept: what was written, in the current attempt and in those that held, in order.
      released: all values that were ever made of a (key, step), and how often.
    """

    def __init__(self, live: bool = False) -> None:
        self.live = live
        self.planned: set[tuple[str, int]] = set()
        self.attempt: list[tuple[str, bytes]] = []
        self.kept: list[tuple[str, bytes]] = []
        self.released: dict[tuple[str, int], Tally[str]] = defaultdict(Tally)

    def reach(self, place: str, back: int = 0) -> None:
        at = place, len(self.kept) + len(self.attempt) - back
        if at in self.planned:
            self.planned.remove(at)
            raise ConnectionError(f"the worker went away, {at}")

    def by_key(self) -> dict[str, list[bytes]]:
        return {key: [data for other, data in self.kept if other == key] for key in "ab"}


_watch = Watch()


class Cell:
    """Makes bytes at every write, as a runner may; or at the end of a bundle, if it is live."""

    def __init__(self, key: str, cell: Any) -> None:
        self._key, self._cell = key, cell
        self._held: Any = None

    def read(self) -> Any:
        self._held = self._cell.read()
        return self._held

    def write(self, data: Any) -> None:
        self._held = data if _watch.live else packed(data)
        self._cell.write(self._held)
        if not _watch.live:
            self.written()

    def written(self) -> None:
        _watch.attempt.append((self._key, packed(self._held)))
        _watch.reach("written", 1)


class Watched:
    """Fails before a step; after its state was written; after it was given out; at the end."""

    def start_bundle(self) -> None:
        _watch.attempt = []

    def finish_bundle(self) -> None:
        _watch.reach("end")
        _watch.kept += _watch.attempt
        _watch.attempt = []

    def through(self, releases: Any, cell: Cell | None = None) -> Iterator[Any]:
        _watch.reach("before")
        for release in releases or ():
            if cell is not None and _watch.live:  # each element has one release
                cell.written()
            key, step, *rest = release.value if hasattr(release, "windows") else release
            _watch.released[key, step][repr(rest)] += 1
            yield release
            _watch.reach("given", 1)


class WatchedElements(Watched, CountEachElement):
    def start_bundle(self) -> None:
        Watched.start_bundle(self)
        CountEachElement.start_bundle(self)

    def process(
        self,
        element: Any,
        windowed: Any = beam.DoFn.WindowedValueParam,
        cell: Any = beam.DoFn.StateParam(CountEachElement.STATE),
    ) -> Iterator[Any]:
        watched = Cell(element[0], cell)
        yield from self.through(super().process(element, windowed, watched), watched)


class WatchedTicks(Watched, CountEachTick):
    # Named anew, as a timer takes one callback.
    AGAIN = TimerSpec("tick", TimeDomain.WATERMARK)

    def process(
        self,
        element: Any,
        arrived: Any = beam.DoFn.StateParam(CountEachTick.ARRIVED),
        cell: Any = beam.DoFn.StateParam(CountEachTick.STATE),
        timer: Any = beam.DoFn.TimerParam(AGAIN),
    ) -> None:
        _watch.reach("before")
        super().process(element, arrived, Cell("ab"[element[0]], cell), timer)

    @on_timer(AGAIN)
    def release(
        self,
        shard: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        arrived: Any = beam.DoFn.StateParam(CountEachTick.ARRIVED),
        cell: Any = beam.DoFn.StateParam(CountEachTick.STATE),
        timer: Any = beam.DoFn.TimerParam(AGAIN),
        later: Any = beam.DoFn.StateParam(CountEachTick.LATER),
    ) -> Iterator[Any]:
        states = arrived, Cell("ab"[shard], cell), timer, later
        yield from self.through(super().release(shard, window, *states))


class Downstream(beam.DoFn):
    """A consumer that fails at the nth release that it sees, once each."""

    def start_bundle(self) -> None:
        self._seen = 0

    def process(self, release: Any) -> Iterator[Any]:
        self._seen += 1
        place = "downstream", self._seen
        if place in _watch.planned:
            _watch.planned.remove(place)
            raise ConnectionError("the sink went away")
        yield release


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "CountEachElement", WatchedElements)
    monkeypatch.setattr(tick_transforms.TickNumbers, "_count_each", WatchedTicks)
    monkeypatch.setattr(all_ticks, "PER_SHARD", 1)


def source(payloads: list[Any]) -> Any:
    """A stream: a bundle for each two elements, and the watermark after each of them."""
    stream = test_stream.TestStream()
    rows = [
        TimestampedValue((key, payload), Timestamp(micros=5 * SECOND * i))
        for i, (key, payload) in enumerate(zip(KEYS, payloads, strict=True))
    ]
    for i in range(0, len(rows), 2):
        stream = stream.add_elements(rows[i : i + 2]).advance_watermark_to(5 * (i + 1))
    # Timers set by timers: a tick each time the watermark moves.
    for seconds in (40, 50):
        stream = stream.advance_watermark_to(seconds)
    typed = beam.Map(lambda element: element).with_output_types(tuple[str, Any])
    return "Stream" >> stream.advance_watermark_to_infinity() | "Typed" >> typed


def outcome(
    name: str, *planned: tuple[str, int], entropy: Entropy | None = None, live: bool = False
) -> tuple[Watch, list[Any]]:
    global _watch
    _watch = Watch(live)
    _watch.planned.update(planned)

    def build(pipeline: beam.Pipeline) -> Any:
        counted = pipeline | source(payloads(name)) | made(name, entropy)
        return counted | beam.ParDo(Downstream())

    releases = run(build, "bundles", ["--streaming"]).releases
    assert not _watch.planned  # it did fail
    return _watch, releases


@pytest.mark.parametrize("apart", [4, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("name", "live"), [*((name, False) for name in STREAMS), *((name, True) for name in ELEMENTS)]
)
def test_failures_at_every_element_change_nothing(name: str, live: bool, apart: int) -> None:
    whole, releases = outcome(name, live=live)
    assert len(releases) == (8 if name == "TickCount" else len(KEYS))
    assert all(sum(tally.values()) == 1 for tally in whole.released.values())
    again: Tally[Any] = Tally()
    half = (len(whole.kept) + 1) // 2
    for first in range(0, half, apart):
        planned = []
        # Two positions, in bundles of their own. Of four attempts one is left to succeed.
        for position in (first, first + half)[: 1 + (first + half < len(whole.kept))]:
            planned += [("before", position), ("written", position)]
            if name != "TickCount" or _gives(whole, position):
                planned.append(("given", position))
        watch, found = outcome(name, *planned, live=live)
        assert watch.by_key() == whole.by_key()
        assert found == releases
        for place, tally in watch.released.items():
            assert list(tally) == list(whole.released[place])
            again[place] += sum(tally.values()) - 1
    assert again.keys() == whole.released.keys()
    assert sum(again.values())
    # Of failures everywhere, every release was given out again at some time.
    assert apart > 1 or all(again.values())


def _gives(whole: Watch, position: int) -> bool:
    """Whether a write of a clock's cell was that of a release: it has more ticks released."""
    key, data = whole.kept[position]
    before = [other for k, other in whole.kept[:position] if k == key]
    (step,) = struct.unpack_from("<q", data, 16)
    return bool(before) and step > struct.unpack_from("<q", before[-1], 16)[0]


@some_streams
def test_failures_at_the_end_of_a_bundle_and_after_it_change_nothing(name: str) -> None:
    whole, releases = outcome(name)
    bundles = [("end", n) for n in (2, len(whole.kept))]
    watch, found = outcome(name, *bundles, ("downstream", 1))
    assert watch.by_key() == whole.by_key()
    assert found == releases
    assert all(
        list(tally) == list(whole.released[place]) for place, tally in watch.released.items()
    )


@some_streams
def test_system_entropy_draws_anew_and_is_consistent(name: str) -> None:
    """The test can fail. Of the attempts one is kept, with one value for each step."""
    whole, _ = outcome(name, entropy=SystemEntropy())
    last = len(whole.kept) - 1
    watch, releases = outcome(name, ("given", last), entropy=SystemEntropy())
    assert any(len(tally) == 2 for tally in watch.released.values())
    assert [(r.key, r.step) for r in releases] == sorted(watch.released)
    assert all(repr(list(r[2:])) in watch.released[r.key, r.step] for r in releases)


def test_a_mutant_that_keeps_state_outside_the_cell_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, _ = outcome("PrefixCount")
    plain, cells = CountEachElement.process, {}

    def process(self: Any, element: Any, windowed: Any, cell: Any) -> Any:
        return plain(self, element, windowed, Outside(cells, element[0], cell))

    monkeypatch.setattr(CountEachElement, "process", process)
    assert outcome("PrefixCount")[0].by_key() == whole.by_key()
    cells.clear()
    assert outcome("PrefixCount", ("written", 3))[0].by_key() != whole.by_key()


# Savepoint, stop, resume


class Kept:
    """A cell, a timer and bags without a runner."""

    def __init__(self, before: Kept | None = None) -> None:
        self.data: bytes | None = None
        self.arrived, self.later = Bag(), Bag()
        if before is not None:
            self.data = before.data
            self.arrived.entries += before.arrived.entries
            self.later.entries += before.later.entries

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: Any) -> None:
        self.data = packed(data)

    def set(self, moment: Any) -> None:
        pass


def dofn(name: str, entropy: Entropy | None = None) -> Any:
    found = dofns_of(made(name, entropy))[WatchedTicks if name == "TickCount" else WatchedElements]
    found.setup()
    return found


def inputs(name: str) -> list[Any]:
    """What the DoFn is given for one key: elements; for a clock also None, a timer."""
    if name == "TickCount":
        return [SEED, arrives(1), None, arrives(3, 2), arrives(2), None, None, None]
    return payloads(name)


def arrives(tick: int, x: int = 1) -> bytes:
    """What counts so much in a tick, at a shard of one key."""
    return placed({0: x}, tick, 1)


def step(counting: Any, given: Any, kept: Kept) -> list[Any]:
    """The releases of one call of a DoFn of the library, in its plain form."""
    if given is None:
        states = kept.arrived, kept, kept, kept.later
        return [r.value for r in CountEachTick.release(counting, 0, GlobalWindow(), *states)]
    if isinstance(counting, CountEachTick):
        CountEachTick.process(counting, (0, given), kept.arrived, kept, kept)
        return []
    element = windowed_value.create(("a", given), 0, (GlobalWindow(),))
    return list(CountEachElement.process(counting, element.value, element, kept))


@each_stream
def test_a_stream_resumed_anywhere_goes_on_as_if_never_stopped(name: str) -> None:
    whole, kept, resumed = dofn(name), Kept(), Kept()
    count = 0
    for given in inputs(name):
        releases = step(whole, given, kept)
        resumed = Kept(resumed)
        assert step(dofn(name), given, resumed) == releases
        assert resumed.data == kept.data
        count += len(releases)
    assert count == (4 if name == "TickCount" else len(KEYS))


@each_stream
def test_states_of_a_newer_version_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the message that test_coders.py and test_ticks.py want of the coders alone."""
    given, newer, kept = inputs(name), dofn(name), Kept()
    later = envelope.FORMAT + 1
    with monkeypatch.context() as patched:
        for module in (codecs, envelope):
            patched.setattr(module, "FORMAT", later)
        step(newer, given[0], kept)
        step(newer, given[1], kept)
    refusal = says(OTHER_FORMAT, theirs=later, ours=envelope.FORMAT, remedy=UPGRADE)
    with pytest.raises(StateError, match=refusal):
        step(dofn(name), None if name == "TickCount" else given[2], kept)


# Of all bytes that are written, without digests: what writes others must raise the version.
PINNED = {"SubstringCount": "f59c9b6cc927490e", "TickCount": "76f13683f2d872e5"}


@pytest.mark.parametrize("name", PINNED)
def test_cells_are_written_as_ever(name: str) -> None:
    """The counters' states are pinned in test_coders.py; this is all that a cell holds."""
    counting, kept, written = dofn(name, ScriptedEntropy()), Kept(), hashlib.sha256()
    for given in inputs(name):
        step(counting, given, kept)
        written.update(kept.data or b"")
    assert written.hexdigest()[:16] == PINNED[name]


# What replayable noise cannot do


def test_late_events_that_fold_elsewhere_are_another_history() -> None:
    """Which tick takes a late event is up to the watermark, which may move otherwise in a replay:
    then the ticks before are the same, and those after have new noise, not an exact difference."""

    def ticked(*given: Any) -> list[float]:
        counting, kept = dofn("TickCount"), Kept()
        releases = [r for one in (SEED, arrives(1), *given) for r in step(counting, one, kept)]
        return [release.value for release in releases]

    late = arrives(1)
    at_two, at_three = ticked(None, late, *[None] * 3), ticked(None, None, late, *[None] * 2)
    assert at_two[0] == at_three[0]
    differences = [a - b for a, b in zip(at_two[1:], at_three[1:], strict=True)]
    assert len(differences) == 3
    assert differences != [1, 0, 0]  # what the same noise would have shown
    assert 0 not in differences
