"""The DoFns that run counters: one per element, one per finished key. All else is pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, count, islice
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics.metric import Metrics
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.utils import windowed_value

from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.dofns.intake import Intake, check_unique, has_str_key
from beam_dpcount.dofns.kept import Kept, KeptCoder
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.dofns.windows import WindowCheck
from beam_dpcount.mechanisms.base import State
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.states.codecs import statistic_codec
from beam_dpcount.states.stacked import Stream, past, released
from beam_dpcount.states.whole_keys import FEW, REMEMBERED, WholeKey
from beam_dpcount.states.wire import packer

_LOGGER = logging.getLogger(__name__)

REJECTED = "rejected"
PAST_HORIZON = "past_horizon"  # a metric: per element, the number of elements is public

_JOINED = 1 << 12  # steps that are apart at a time
_GATHERED = 1 << 20  # bytes of steps that a bundle gathers before it releases them

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
# _WindowedValue has time and windows at once: making a Timestamp costs a microsecond.
_Window: Any = beam.DoFn.WindowParam
_WindowedValue: Any = beam.DoFn.WindowedValueParam
_created: Any = windowed_value.create


@lru_cache(maxsize=64)
def warn_past_horizon(counter: LatticeCounter) -> None:
    """Once per worker; how many elements there are is public."""
    _LOGGER.warning("elements without a release: %s", past_horizon(counter))


def past_horizon(counter: LatticeCounter) -> str:
    return f"step beyond the horizon of {counter.horizon}: declare a larger one"


class CountEachElement(VersionedDoFn):
    """Streaming: a release for each element as it arrives, from one cell of state per key."""

    STATE = ReadModifyWriteStateSpec("counter", KeptCoder())

    def __init__(self, intake: Intake, entropy: Entropy, check: WindowCheck) -> None:
        self._intake, self._entropy, self._check = intake, entropy, check

    def setup(self) -> None:
        intake = self._intake
        self._past_horizon = Metrics.counter("beam_dpcount", PAST_HORIZON)
        self._draws = draws = intake.draws(self._entropy)
        self._codec = statistic_codec(intake.counter, intake.statistic, draws.digest_size)
        self._start, self._pack = intake.statistic.init(), packer(intake.statistic.width)
        self._init, self._horizon = intake.counter.init(), intake.counter.horizon
        self._stddevs = StepStddevs(intake.counter)
        self._bundle = object()

    def start_bundle(self) -> None:
        self._bundle = object()

    def process(
        self,
        element: tuple[str, Any],
        windowed: Any = _WindowedValue,
        cell: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterator[Any]:
        self._check(windowed.windows)
        key, payload = element
        intake, micros = self._intake, windowed.timestamp_micros
        counter, statistic, draws = intake.counter, intake.statistic, self._draws
        window, kept = windowed.windows[0], cell.read()
        is_new = not self._is_ours(kept)
        if is_new:
            kept = self._opened(kept, key, window)
        if self._horizon is not None and kept.state[0] >= self._horizon:
            self._past_horizon.inc()
            warn_past_horizon(counter)
            if intake.collects:
                beyond = intake.refuse(key, payload, micros, past_horizon(counter))
                yield beam.pvalue.TaggedOutput(REJECTED, beyond)
            return
        codes, rejected = intake.codes(key, payload, micros)
        digest = b""
        if draws.digest_size:
            identity = intake.identity(payload)
            digest = draws.follow(kept.digest, identity, self._pack(0, codes))
        memory, x = statistic.count(kept.memory, codes)
        state, value = counter.step_lattice(kept.state, x, draws.noise(key, window, digest))
        # State first: what is yielded must never be ahead of what is remembered.
        kept.state, kept.digest, kept.memory = state, digest, memory
        if is_new:
            cell.write(kept)
        if rejected is not None:
            yield beam.pvalue.TaggedOutput(REJECTED, rejected)
        if state[0] % intake.every:
            return
        if counter.dimension is not None:
            value = intake.shown(value)
        yield intake.release_type(key, state[0], micros, value, self._stddevs.at(state))

    def _is_ours(self, found: object) -> bool:
        """Whether this bundle may change what it found in a cell."""
        return type(found) is Kept and found.bundle is self._bundle

    def _packed(self, state: State, digest: bytes, memory: object) -> bytes:
        statistic = self._intake.statistic
        return self._codec.encode(state, digest, b"" if memory is None else statistic.pack(memory))

    def _opened(self, found: Any, key: str, window: Any) -> Kept:
        """What this bundle may change of what a cell holds."""
        memory = self._start
        if found is None:
            begin = self._draws.begin(key, window) if self._draws.digest_size else b""
            parts: tuple[Any, ...] = (self._init, begin, memory)
        elif type(found) is Kept:
            parts = found.state, found.digest, found.memory
        else:
            if memory is not None:  # None: nothing is ever remembered
                memory = self._intake.statistic.unpack(self._codec.memory_of(found))
            parts = self._codec.decode(found), self._codec.digest_of(found), memory
        return Kept(self._packed, self._bundle, *parts)


class StepStddevs:
    """The standard deviations of releases, remembered by their steps: many keys take the same."""

    def __init__(self, counter: LatticeCounter) -> None:
        self._counter, self._far = counter, dict[int, float]()
        self._known: list[float] = []  # of the first steps

    def at(self, state: State) -> float:
        """That of the release that led to this state."""
        step = state[0]
        self._know(step)
        if step <= len(self._known):
            return self._known[step - 1]
        found = self._far.get(step)
        if found is None:
            if len(self._far) >= REMEMBERED:
                self._far.clear()
            found = self._far[step] = self._counter.stddev_at(state)
        return found

    def of(self, first: int, last: int) -> Sequence[float]:
        """Those of steps in a row."""
        self._know(last)
        if last <= len(self._known):
            return self._known[first - 1 : last]
        return self._counter.stddevs_between(first, last)

    def _know(self, step: int) -> None:
        if len(self._known) < step <= REMEMBERED:
            horizon = self._counter.horizon or REMEMBERED
            many = min(max(2 * step, FEW), REMEMBERED, horizon)
            self._known = self._counter.stddevs(many).tolist()


class CheckKeys(VersionedDoFn):
    """Streaming: checks that elements are pairs with str keys, in one declared window each."""

    def __init__(self, intake: Intake, check: WindowCheck) -> None:
        self._intake, self._check = intake, check

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterator[Any]:
        self._check(windowed.windows)  # further on, Beam hands windows over one by one
        if has_str_key(element):
            yield element
        else:
            refusal = self._intake.refuse_key(element, windowed.timestamp_micros)
            yield beam.pvalue.TaggedOutput(REJECTED, refusal)


class ReadElements(VersionedDoFn):
    """Bounded, before the grouping: (key, value) to (key, step), for `CountWholeKey`.

    A step is its time in microseconds and its codes, packed into 8 bytes each, which shuffle three
    times as fast as a tuple. Only where they are needed, it is a tuple of that, the time, the
    public id, the value for a later refusal, and the refusal, if any.
    """

    def __init__(self, intake: Intake, check: WindowCheck) -> None:
        self._intake, self._check = intake, check
        step: Any = bytes if intake.is_plain else tuple[Any, ...]
        self.output_type: Any = tuple[str, step]

    def setup(self) -> None:
        self._pack = packer(self._intake.statistic.width)

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        self._check(windowed.windows)
        intake, micros = self._intake, windowed.timestamp_micros
        # First what most are, in line.
        is_pair = type(element) is tuple and len(element) == 2 and type(element[0]) is str
        if is_pair and intake.is_plain:
            codes, _ = intake.codes(element[0], element[1], micros)
            return ((element[0], self._pack(micros, codes)),)
        if not has_str_key(element):
            return (beam.pvalue.TaggedOutput(REJECTED, intake.refuse_key(element, micros)),)
        key, payload = element
        codes, refusal = intake.codes(key, payload, micros)
        step = self._pack(micros, codes)
        if intake.is_plain:
            return ((key, step),)
        identity = intake.identity(payload)
        return ((key, (step, micros, identity, payload if intake.collects else None, refusal)),)


def _joined(steps: Iterable[bytes]) -> bytearray:
    """All steps of a key, which a runner may read bit by bit: never all apart, nor twice."""
    following, joined = iter(steps), bytearray()
    while some := b"".join(islice(following, _JOINED)):
        joined += some
    return joined


class PassReleases(VersionedDoFn):
    """Releases as they are, an element each.

    Beam 2.77 flushes what waits for a step that takes elements in batches, as dataframes and the
    schema-aware sinks do, before the step in front of it has finished its bundle. What that one
    gives only then would be lost, without a word.
    """

    def process(self, release: Any) -> tuple[Any]:
        return (release,)


class CountWholeKey(VersionedDoFn):
    """Bounded, after the grouping: all releases of a key in one vectorised call.

    Numbers of many keys, in one such call for all of like lengths; see `stacked.py`.
    """

    def __init__(self, intake: Intake, entropy: Entropy) -> None:
        self._intake, self._entropy = intake, entropy

    def setup(self) -> None:
        intake, self._draws = self._intake, self._intake.draws(self._entropy)
        self._whole = WholeKey(intake.counter, intake.statistic, self._draws)
        self._past_horizon = Metrics.counter("beam_dpcount", PAST_HORIZON)
        in_order = self._intake.counter.draws is not None
        self._stacks = self._intake.is_lean and in_order and not self._draws.digest_size

    def start_bundle(self) -> None:
        self._gathered: list[Stream] = []
        self._many = 0

    def process(self, element: tuple[str, Iterable[Any]], window: Any = _Window) -> Iterable[Any]:
        if not self._stacks:
            return self._alone(element, window)
        stream = Stream(element[0], window, _joined(element[1]))
        if len(stream.packed) >= _GATHERED:  # by itself, as several are copied
            return chain(self._flushed(), self._of([stream]))
        self._gathered.append(stream)
        self._many += len(stream.packed)
        return self._flushed() if self._many >= _GATHERED else ()

    def finish_bundle(self) -> Iterable[windowed_value.WindowedValue]:
        return self._flushed()

    def _flushed(self) -> Iterator[windowed_value.WindowedValue]:
        streams = self._gathered
        self.start_bundle()
        return self._of(streams)

    def _of(self, streams: Sequence[Stream]) -> Iterator[Any]:
        """Their releases."""
        counter = self._intake.counter
        if not streams:
            return
        beyond, longest = past(streams, counter.horizon)
        if beyond:
            self._past_horizon.inc(beyond)
            warn_past_horizon(counter)
        made: Any = self._intake.release_type
        noise, windows = self._draws.noise, (streams[0].window,)
        of = (lambda s: noise(s.key, s.window, b"")), counter.draws or int
        for stream, steps in released(counter, streams, *of):
            key, stddevs = stream.key, self._whole.stddevs(longest)
            if windows[0] is not stream.window:
                windows = (stream.window,)
            for number, (micros, value), stddev in zip(count(1), steps, stddevs, strict=False):
                # TimestampedValue would assign the window anew, which costs more than all the rest.
                yield _created(made(key, number, micros, value, stddev), micros, windows)

    def _alone(self, element: tuple[str, Iterable[Any]], window: Any) -> Iterator[Any]:
        key, steps = element
        windows = (window,)
        intake, counter = self._intake, self._intake.counter
        horizon, identities = counter.horizon, None
        if not intake.is_plain:
            # Ties in time: by the public id if there is one, else in order of arrival.
            by_id = intake.element_id is not None
            try:
                ordered = sorted(steps, key=itemgetter(1, 2) if by_id else itemgetter(1))
            except TypeError:
                problem = "element_id must give ids that sort, all of one type"
                raise TypeError(f"{problem}: convert them, e.g. by str()") from None
            if intake.collects:
                for number, (_, micros, _, payload, refusal) in enumerate(ordered):
                    if horizon is not None and number >= horizon:
                        refusal = intake.refuse(key, payload, micros, past_horizon(counter))
                    if refusal is not None:
                        placed = _created(refusal, micros, windows)
                        yield beam.pvalue.TaggedOutput(REJECTED, placed)
            steps = [step for step, *_ in ordered]
            identities = [identity for _, _, identity, *_ in ordered] if by_id else None
            if identities is not None:
                check_unique(identities)
        packed = np.frombuffer(b"".join(steps), dtype="<i8").reshape(-1, 1 + intake.statistic.width)
        if (packed[1:, 0] < packed[:-1, 0]).any():
            packed = packed[np.argsort(packed[:, 0], kind="stable")]
        if horizon is not None and len(packed) > horizon:
            self._past_horizon.inc(len(packed) - horizon)
            warn_past_horizon(counter)
        packed = packed[:horizon]
        values = self._whole.values(key, window, packed, identities)
        if isinstance(values, np.ndarray) and values.ndim == 1:
            values = values.tolist()  # vectors one at a time: lists take four times the memory
        stddevs, made = self._whole.stddevs(len(packed)), intake.release_type
        rows = zip(count(1), packed[:, 0].tolist(), values, stddevs, strict=False)
        for number, micros, value, stddev in islice(rows, intake.every - 1, None, intake.every):
            yield _created(made(key, number, micros, intake.shown(value), stddev), micros, windows)
