"""The DoFns that run counters: one per element, one per finished key. All else is pure."""

from __future__ import annotations

import logging
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count, islice, repeat
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.metrics.metric import Metrics
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.counters.counter import LatticeCounter, NotANumberError
from beam_dpcount.dofns.releases import Rejected, Release
from beam_dpcount.dofns.rows import TO_PAIRS, RowElementError, is_row
from beam_dpcount.dofns.states import StateCodec
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.noise.entropy import Entropy, Noise
from beam_dpcount.noise.replay import StepNoises

_LOGGER = logging.getLogger(__name__)

STEP = struct.Struct("<qq")  # of one number; see Intake.packer
REJECTED = "rejected"
PAST_HORIZON = "past_horizon"  # a metric: per element, the number of elements is public
ON_REJECT = ("drop", "raise", "collect")

_MILLISECOND = 1000  # to which Beam cuts the bounds of windows

# Below this many steps a loop over `step` is faster than the vectorised release.
_FEW = 48
# Beyond this many numbers (steps times coordinates) a vector stream is not held whole.
_MOST = 1 << 23

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
# An element with its timestamp and window comes whole: making a Timestamp costs a microsecond.
_Window: Any = beam.DoFn.WindowParam
_WindowedValue: Any = beam.DoFn.WindowedValueParam


class UnexpectedWindowError(ValueError):
    """An element lies in other windows than its PCollection declares; windows are public."""


class WindowCheck:
    """That elements lie in one window each, of the declared kind; else they would count in several.

    A Flatten of differently windowed inputs declares the windows of the first one only.

    Args:
      size: of FixedWindows, in microseconds; None for the global window.
      period, offset: of the grid on which windows start; default: size, and 0.
    """

    def __init__(self, size: int | None, period: int | None = None, offset: int = 0) -> None:
        self._size, self._period, self._offset = size, period or size, offset
        self._seen: Any = None

    def __call__(self, windows: Any) -> None:
        """Raise UnexpectedWindowError, unless all is well."""
        if windows is self._seen:
            return
        if len(windows) <= 1 and all(map(self._declared, windows)):  # none: a gap between windows
            self._seen = windows
            return
        raise UnexpectedWindowError(
            "an element lies in other windows than its PCollection declares, and would spend the "
            "budget in several: apply one beam.WindowInto to all inputs of a Flatten"
        )

    def _declared(self, window: Any) -> bool:
        if self._size is None or self._period is None:
            return isinstance(window, GlobalWindow)
        if not isinstance(window, IntervalWindow):
            return False
        # Windows as long as declared that start elsewhere overlap the declared ones.
        beyond = (window.start.micros - self._offset) % self._period
        return (
            window.end.micros - window.start.micros == self._size
            and min(beyond, self._period - beyond) < _MILLISECOND
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": None}


class RejectedElementError(ValueError):
    """An element was refused under on_reject="raise"; its presence in the data is thereby shown."""


class Intake:
    """Reads elements: the public key and id, and the value on the lattice.

    Args:
      counter: whose lattice.
      on_reject: "drop", "raise" or "collect".
      value, element_id: take the number and the public id out of an element's value; None: the
        value is the number, and has no id.

    For streams of other things than numbers, a subclass overrides `number`, which may then give
    anything, and what follows `refuse`.

    Attributes:
      release_type: what is given out; has the fields of Release.
      every: a release for each so many steps.
      width: how many int64 numbers hold in a shuffle what `number` gives.
    """

    release_type: Any = Release
    width = 1
    every = 1

    def __init__(
        self,
        counter: LatticeCounter,
        on_reject: str,
        value: Callable[[Any], Any] | None,
        element_id: Callable[[Any], Any] | None,
    ) -> None:
        self.counter, self.on_reject = counter, on_reject
        self.collects = on_reject == "collect"
        self._value, self.element_id = value, element_id
        self.is_plain = element_id is None and not self.collects

    def number(self, key: str, payload: Any, micros: int) -> tuple[Any, Rejected | None]:
        """The value on the lattice, or 0 and the refusal; the step is taken in any case."""
        try:
            x = payload if self._value is None else self._value(payload)
            return self.counter.quantise(x), None
        except (ValueError, TypeError, ArithmeticError, LookupError) as error:
            # Also what float("abc") in a user's callable raises: it would show the value.
            ours = isinstance(error, NotANumberError)
            reason = str(error) if ours else "the value could not be taken as a number"
        # Out of the block: what the user's element_id may raise must not carry that error along.
        nothing = self.counter.quantise_nothing()
        if self.on_reject == "drop":
            return nothing, None
        return nothing, self.refuse(key, payload, micros, reason)

    def problem(self, content: Any) -> str | None:
        """Why what `value` gave does not count as it is, in words that do not show it."""
        try:
            x = self.counter.quantise(content)
        except NotANumberError as error:
            return str(error)
        low, high, unit = self.counter.change.low, self.counter.change.high, self.counter.unit
        if not low <= content <= high:
            return f"the value lies outside the bounds ({low:g}, {high:g}) and is clipped"
        if math.isclose(x * unit, content, rel_tol=1e-9, abs_tol=1e-9 * unit):
            return None
        return f"the value is rounded to a multiple of {unit:g}"

    def problem_of(self, element: Any) -> str | None:
        """The same of an element; errors of functions of the user's are not caught."""
        if not has_str_key(element):
            return self.refuse_key(element, 0).reason
        _, payload = element
        if self.element_id is not None:
            self.element_id(payload)
        return self.problem(payload if self._value is None else self._value(payload))

    def refuse_key(self, element: Any, micros: int) -> Rejected:
        """For an element without a str key: keys are public, so it cannot pass silently."""
        if is_row(element):
            if not self.collects:
                raise RowElementError(TO_PAIRS)
            reason = "the element is a row, not a (key, value) pair"
        elif isinstance(element, tuple) and len(element) == 2:
            reason = f"the key is not a str but {type(element[0]).__name__}"
        else:
            reason = f"the element is not a (key, value) pair but {type(element).__name__}"
        if not self.collects:
            raise TypeError(f"elements must be (key, value) pairs with a str key, but {reason}")
        return Rejected("", micros, reason, repr(element), None)

    def refuse(self, key: str, payload: Any, micros: int, reason: str) -> Rejected:
        """The record of a refusal, or the error that on_reject="raise" asked for."""
        identity = None if self.element_id is None else self.element_id(payload)
        if self.on_reject == "raise":
            where = "" if identity is None else f" (element {identity})"
            raise RejectedElementError(
                f"{reason}{where}: mend the input, or count such elements as 0 with "
                'on_reject="drop"'
            ) from None
        shown = None if identity is None else str(identity)
        return Rejected(key, micros, reason, repr(payload), shown)

    def packer(self) -> Callable[[int, Any], bytes]:
        """A function of a time and of what `number` gave; not picklable."""
        return STEP.pack

    def init(self) -> Any:
        """What is remembered of a stream, beside the counter's state, before its first element."""
        return None

    def all_counted(self, memory: Any, numbers: IntArray) -> tuple[Any, IntArray]:
        """The memory, and what the counter counts in many steps, from what was packed.

        Args:
          memory: from `init`, or from the steps before.
          numbers: shape (n, width).
        """
        return None, numbers[:, 0]

    def counted(self, memory: Any, x: Any) -> tuple[Any, Any]:
        """The memory, and what the counter counts in one step, from what `number` gave."""
        return None, x

    def codec(self, digest_size: int) -> Any:
        """Packs a state, the memory and a digest into bytes; not picklable."""
        return _Forgetful(self.counter, digest_size, self.parameters)

    @property
    def parameters(self) -> str:
        """All that releases depend on, for replayable noise."""
        return self.counter.fingerprint

    def shown(self, value: Any) -> Any:
        """One released value as a release has it."""
        return value


def pack_codes(width: int) -> Callable[[int, Any], bytes]:
    """A `packer` of a time and so many whole numbers."""
    pack = struct.Struct(f"<{1 + width}q").pack
    return lambda micros, codes: pack(micros, *codes)


def has_str_key(element: Any) -> bool:
    """Whether an element is a pair with a text key; a row is not, whatever its first field."""
    if type(element) is not tuple and (not isinstance(element, tuple) or is_row(element)):
        return False
    return len(element) == 2 and isinstance(element[0], str)


def check_unique(identities: Sequence[Any]) -> None:
    """Raise ValueError for public ids that are not: replays in another order would show values."""
    for identity, times in Counter(identities).items():
        if times > 1:
            raise ValueError(
                f"element_id gave {identity!r} for {times} elements of a key, but replayable noise "
                "needs ids that are unique: add what tells them apart, such as the row"
            )


@lru_cache(maxsize=64)
def warn_past_horizon(counter: LatticeCounter) -> None:
    """Say once per worker that elements have no release; how many elements there are is public."""
    _LOGGER.warning("elements without a release: %s", past_horizon(counter))


def past_horizon(counter: LatticeCounter) -> str:
    """The reason given for elements beyond the horizon."""
    return f"step beyond the horizon of {counter.horizon}: declare a larger one"


class CountEachElement(beam.DoFn):
    """Streaming: a release for each element as it arrives, from one cell of state per key."""

    STATE = ReadModifyWriteStateSpec("counter", BytesCoder())

    def __init__(self, intake: Intake, entropy: Entropy, check: WindowCheck) -> None:
        self._intake, self._entropy, self._check = intake, entropy, check

    def setup(self) -> None:
        intake, counter = self._intake, self._intake.counter
        self._past_horizon = Metrics.counter("beam_dpcount", PAST_HORIZON)
        self._draws = Draws(self._entropy, counter, intake.parameters)
        self._codec = intake.codec(self._draws.digest_size)
        self._start, self._pack = (counter.init(), intake.init()), intake.packer()

    def process(
        self,
        element: tuple[str, Any],
        windowed: Any = _WindowedValue,
        cell: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterator[Any]:
        key, payload = element
        self._check(windowed.windows)
        intake, micros = self._intake, windowed.timestamp_micros
        counter = intake.counter
        data = cell.read()
        state, memory = self._start if data is None else self._codec.decode(data)
        if counter.horizon is not None and state[0] >= counter.horizon:
            self._past_horizon.inc()
            warn_past_horizon(counter)
            if intake.collects:
                yield beam.pvalue.TaggedOutput(
                    REJECTED, intake.refuse(key, payload, micros, past_horizon(counter))
                )
            return
        x, rejected = intake.number(key, payload, micros)
        window, draws = windowed.windows[0], self._draws
        digest = b""
        if draws.replay is not None:
            before = draws.begin(key, window) if data is None else self._codec.digest_of(data)
            identity = None if intake.element_id is None else intake.element_id(payload)
            digest = draws.replay.follow(before, identity, self._pack(0, x))
        noise = draws.noise(key, window, digest)
        memory, x = intake.counted(memory, x)
        state, value = counter.step_lattice(state, x, noise)
        # State first: what is yielded must never be ahead of what is remembered.
        cell.write(self._codec.encode(state, memory, digest))
        if rejected is not None:
            yield beam.pvalue.TaggedOutput(REJECTED, rejected)
        if state[0] % intake.every:
            return
        value = intake.shown(value)
        yield intake.release_type(key, state[0], micros, value, counter.stddev_at(state))


class CheckKeys(beam.DoFn):
    """Streaming: that elements are pairs with str keys, in one of the declared windows each."""

    def __init__(self, intake: Intake, check: WindowCheck) -> None:
        self._intake, self._check = intake, check

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterator[Any]:
        self._check(windowed.windows)  # behind it, Beam hands them over one by one
        if has_str_key(element):
            yield element
        else:
            refusal = self._intake.refuse_key(element, windowed.timestamp_micros)
            yield beam.pvalue.TaggedOutput(REJECTED, refusal)


class ReadElements(beam.DoFn):
    """Bounded, before the grouping: (key, value) to (key, step), for `CountWholeKey`.

    A step is its time in microseconds and its number on the lattice, packed into 16 bytes (more
    where an intake's `width` is), which shuffle three times as fast as a tuple. The public id, and
    the value for a later refusal, follow in a tuple only where they are needed, with the refusal of
    the number, if any.
    """

    def __init__(self, intake: Intake, check: WindowCheck) -> None:
        self._intake, self._check = intake, check
        step: Any = bytes if intake.is_plain else tuple[Any, ...]
        self.output_type: Any = tuple[str, step]

    def setup(self) -> None:
        self._pack = self._intake.packer()

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        self._check(windowed.windows)
        intake, micros = self._intake, windowed.timestamp_micros
        if not has_str_key(element):
            return (beam.pvalue.TaggedOutput(REJECTED, intake.refuse_key(element, micros)),)
        key, payload = element
        x, refusal = intake.number(key, payload, micros)
        step = self._pack(micros, x)
        if intake.is_plain:
            return ((key, step),)
        identity = None if intake.element_id is None else intake.element_id(payload)
        return ((key, (step, micros, identity, payload if intake.collects else None, refusal)),)


class CountWholeKey(beam.DoFn):
    """Bounded, after the grouping: all releases of a key in one vectorised call."""

    def __init__(self, intake: Intake, entropy: Entropy) -> None:
        self._intake, self._entropy = intake, entropy

    def setup(self) -> None:
        self._draws = Draws(self._entropy, self._intake.counter, self._intake.parameters)
        self._stddevs: list[float] = []
        self._past_horizon = Metrics.counter("beam_dpcount", PAST_HORIZON)

    def process(self, element: tuple[str, Iterable[Any]], window: Any = _Window) -> Iterator[Any]:
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
                raise TypeError(
                    "element_id must give ids that sort, all of one type: convert them, e.g. by "
                    "str()"
                ) from None
            if intake.collects:
                for number, (_, micros, _, payload, refusal) in enumerate(ordered):
                    if horizon is not None and number >= horizon:
                        refusal = intake.refuse(key, payload, micros, past_horizon(counter))
                    if refusal is not None:
                        placed = windowed_value.create(refusal, micros, windows)
                        yield beam.pvalue.TaggedOutput(REJECTED, placed)
            steps = [step for step, *_ in ordered]
            identities = [identity for _, _, identity, *_ in ordered] if by_id else None
            if identities is not None and self._draws.replay is not None:
                check_unique(identities)
        packed = np.frombuffer(b"".join(steps), dtype="<i8").reshape(-1, 1 + intake.width)
        if (packed[1:, 0] < packed[:-1, 0]).any():
            packed = packed[np.argsort(packed[:, 0], kind="stable")]
        if horizon is not None and len(packed) > horizon:
            self._past_horizon.inc(len(packed) - horizon)
            warn_past_horizon(counter)
        packed = packed[:horizon]
        if self._draws.replay is None:
            noise = self._draws.noise(key, window, b"")
            values = self._release(packed[:, 1:], repeat(noise), noise)
        else:
            noises = self._histories(key, window, packed, identities)
            whole = None if counter.draws is None else StepNoises(noises, counter.draws)
            values = self._release(packed[:, 1:], noises, whole)
        stddevs = self._stddevs
        if len(stddevs) < len(packed):
            stddevs = self._stddevs = counter.stddevs(len(packed)).tolist()
        made = intake.release_type
        rows = zip(count(1), packed[:, 0].tolist(), values, stddevs, strict=False)
        for number, micros, value, stddev in islice(rows, intake.every - 1, None, intake.every):
            released = made(key, number, micros, intake.shown(value), stddev)
            # TimestampedValue would assign the window anew, which costs more than all the rest.
            yield windowed_value.create(released, micros, windows)

    def _release(self, numbers: IntArray, noises: Iterable[Noise], whole: Any) -> Iterable[Any]:
        """From the noise of each step, or, where it is faster, from that of all of them, if any."""
        intake, counter = self._intake, self._intake.counter
        values: Iterable[Any] = self._stepped(numbers, noises)
        few = len(numbers) <= _FEW or len(numbers) * (counter.dimension or 0) > _MOST
        if whole is not None and not few:
            values = counter.release_lattice(intake.all_counted(intake.init(), numbers)[1], whole)
        if counter.dimension is None and isinstance(values, np.ndarray):
            return values.tolist()
        # A vector at a time: lists take four times the memory of arrays.
        return values

    def _histories(
        self, key: str, window: Any, packed: IntArray, identities: Sequence[Any] | None
    ) -> Iterator[Noise]:
        """The noise of each step, of the history up to and with it, as in CountEachElement."""
        draws = self._draws
        digest, untimed = draws.begin(key, window), packed.copy()
        untimed[:, 0] = 0
        data, size = untimed.tobytes(), 8 * packed.shape[1]
        for row, identity in enumerate(identities or repeat(None, len(packed))):
            digest = draws.follow(digest, identity, data[row * size : (row + 1) * size])
            yield draws.noise(key, window, digest)

    def _stepped(self, numbers: IntArray, noises: Iterable[Noise]) -> Iterator[Any]:
        """The same in little memory: a step is taken when its release is asked for."""
        intake, counter = self._intake, self._intake.counter
        state, memory, following = counter.init(), intake.init(), iter(noises)
        for first in range(0, len(numbers), _FEW):
            memory, xs = intake.all_counted(memory, numbers[first : first + _FEW])
            for x in xs.tolist() if xs.ndim == 1 else xs:
                state, value = counter.step_lattice(state, x, next(following))
                yield value


class _Forgetful:
    """The codec of streams of which nothing is remembered but the counter's state."""

    def __init__(self, counter: LatticeCounter, digest_size: int, parameters: str) -> None:
        self._states = StateCodec(counter, digest_size, parameters)
        self.digest_of = self._states.digest_of

    def encode(self, state: Any, memory: None, digest: bytes) -> bytes:
        return self._states.encode(state, digest)

    def decode(self, data: bytes) -> tuple[Any, None]:
        return self._states.decode(data), None


class Draws:
    """The noise of one counter on one worker: new at every step, or of the history before it.

    Attributes:
      replay: digests histories; None where noise is new.
      digest_size: of a history's digest, in bytes; 0 where there is none.
    """

    def __init__(self, entropy: Entropy, counter: LatticeCounter, parameters: str) -> None:
        self.replay: Any = None
        self.digest_size = 0
        self.noise: Callable[[str, Any, bytes], Noise]
        if entropy.is_replayable:
            self.replay = entropy.replay(counter.law, counter.dimension, parameters)
            self.digest_size = self.replay.digest_size
            self.noise = lambda key, window, digest: self.replay.noise(digest)
        else:
            source = entropy.source(counter.law, counter.dimension)
            self.noise = lambda key, window, digest: source(key, window)

    def begin(self, key: str, window: Any) -> bytes:
        """The digest of the empty history; empty where noise is new."""
        return b"" if self.replay is None else self.replay.begin(key, window)

    def follow(self, digest: bytes, identity: Any, value: bytes) -> bytes:
        """The digest of one more element; empty where noise is new."""
        return b"" if self.replay is None else self.replay.follow(digest, identity, value)
