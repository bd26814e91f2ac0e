"""The DoFns that run counters: one per element, one per finished key. All else is pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.coders import StateCodec
from beam_dpcount.counter import Counter, NotANumberError
from beam_dpcount.noise import Entropy
from beam_dpcount.releases import Rejected, Release

REJECTED = "rejected"
ON_REJECT = ("drop", "raise", "collect")

# Below this many steps a loop over `step` is faster than the vectorised release.
_FEW = 48

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_Timestamp: Any = beam.DoFn.TimestampParam
_Window: Any = beam.DoFn.WindowParam


class RejectedElementError(ValueError):
    """An element was refused under on_reject="raise"; its presence in the data is thereby shown."""


class Intake:
    """Reads elements: the public key, time and id, and the value on the lattice.

    Args:
      counter: whose lattice.
      on_reject: "drop", "raise" or "collect".
      value, element_id: take the number and the public id out of an element's value; None: the
        value is the number, and has no id.
    """

    def __init__(
        self,
        counter: Counter,
        on_reject: str,
        value: Callable[[Any], Any] | None,
        element_id: Callable[[Any], Any] | None,
    ) -> None:
        self.counter, self.on_reject = counter, on_reject
        self._value, self._element_id = value, element_id

    def id(self, payload: Any) -> Any:
        return None if self._element_id is None else self._element_id(payload)

    def number(self, key: str, payload: Any, micros: int) -> tuple[Any, Rejected | None]:
        """The value on the lattice, or 0 and the reason; the step is taken in any case."""
        try:
            return self.counter.quantise(
                payload if self._value is None else self._value(payload)
            ), None
        except NotANumberError as error:
            nothing = self.counter.quantise_nothing()
            if self.on_reject == "drop":
                return nothing, None
            return nothing, self.refuse(key, payload, micros, str(error))

    def check_key(self, element: Any, micros: int) -> Rejected | None:
        """None for a pair with a text key; keys are public, so others cannot pass silently."""
        if isinstance(element, tuple) and len(element) == 2 and isinstance(element[0], str):
            return None
        kind = type(element[0] if isinstance(element, tuple) and element else element).__name__
        if self.on_reject != "collect":
            raise TypeError(
                f"elements must be (key, value) pairs with a str key, got one of {kind}: convert "
                "the key before counting"
            )
        return Rejected("", micros, f"the key is not a str but {kind}", repr(element), None)

    def refuse(self, key: str, payload: Any, micros: int, reason: str) -> Rejected:
        """The record of a refusal, or the error that on_reject="raise" asked for."""
        identity = self.id(payload)
        if self.on_reject == "raise":
            where = "" if identity is None else f" (element {identity})"
            raise RejectedElementError(
                f"{reason}{where}: mend the input, or count such elements as 0 with "
                'on_reject="drop"'
            ) from None
        shown = None if identity is None else str(identity)
        return Rejected(key, micros, reason, repr(payload), shown)


def past_horizon(counter: Counter) -> str:
    """The reason given for elements beyond the horizon."""
    return f"step beyond the horizon of {counter.mechanism.horizon}: declare a larger one"


class CountEachElement(beam.DoFn):
    """Streaming: a release for each element as it arrives, from one cell of state per key."""

    STATE = ReadModifyWriteStateSpec("counter", BytesCoder())

    def __init__(self, intake: Intake, entropy: Entropy) -> None:
        self._intake, self._entropy = intake, entropy

    def setup(self) -> None:
        counter = self._intake.counter
        self._codec = StateCodec(counter)
        self._noise = self._entropy.source(counter.law, counter.dimension)

    def process(
        self,
        element: tuple[str, Any],
        timestamp: Any = _Timestamp,
        window: Any = _Window,
        cell: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterator[Any]:
        key, payload = element
        intake, micros = self._intake, timestamp.micros
        counter = intake.counter
        data = cell.read()
        state = counter.init() if data is None else self._codec.decode(data)
        if state[0] >= counter.mechanism.horizon:
            if intake.on_reject == "collect":
                yield beam.pvalue.TaggedOutput(
                    REJECTED, intake.refuse(key, payload, micros, past_horizon(counter))
                )
            return
        x, rejected = intake.number(key, payload, micros)
        state, value = counter.mechanism.step(state, x, self._noise(key, window))
        # State first: what is yielded must never be ahead of what is remembered.
        cell.write(self._codec.encode(state))
        if rejected is not None:
            yield beam.pvalue.TaggedOutput(REJECTED, rejected)
        yield Release(key, state[0], micros, float(value * counter.unit), counter.stddev_at(state))


class CheckKeys(beam.DoFn):
    """Streaming, where the input's type does not promise pairs with str keys."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def process(self, element: Any, timestamp: Any = _Timestamp) -> Iterator[Any]:
        rejected = self._intake.check_key(element, timestamp.micros)
        if rejected is None:
            yield element
        else:
            yield beam.pvalue.TaggedOutput(REJECTED, rejected)


class ReadElements(beam.DoFn):
    """Bounded, before the grouping: (key, value) to (key, (micros, id, number, value if kept)).

    The number is on the lattice. The value itself goes on only where a refusal may need it.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def process(self, element: Any, timestamp: Any = _Timestamp) -> Iterator[Any]:
        intake, micros = self._intake, timestamp.micros
        rejected = intake.check_key(element, micros)
        if rejected is not None:
            yield beam.pvalue.TaggedOutput(REJECTED, rejected)
            return
        key, payload = element
        x, rejected = intake.number(key, payload, micros)
        if rejected is not None:
            yield beam.pvalue.TaggedOutput(REJECTED, rejected)
        kept = payload if intake.on_reject == "collect" else None
        yield key, (micros, intake.id(payload), x, kept)


class CountWholeKey(beam.DoFn):
    """Bounded, after the grouping: all releases of a key in one vectorised call."""

    def __init__(self, intake: Intake, entropy: Entropy) -> None:
        self._intake, self._entropy = intake, entropy

    def setup(self) -> None:
        counter = self._intake.counter
        self._noise = self._entropy.source(counter.law, counter.dimension)
        self._stddevs: list[float] = []

    def process(
        self, element: tuple[str, Iterable[tuple[int, Any, int, Any]]], window: Any = _Window
    ) -> Iterator[Any]:
        key, grouped = element
        # Ties in time: by the public id if there is one, else in order of arrival.
        steps = list(grouped)
        by_id = bool(steps) and steps[0][1] is not None
        steps.sort(key=itemgetter(0, 1) if by_id else itemgetter(0))
        counter = self._intake.counter
        horizon = counter.mechanism.horizon
        if self._intake.on_reject == "collect":
            for micros, _, _, payload in steps[horizon:]:
                yield beam.pvalue.TaggedOutput(
                    REJECTED, self._intake.refuse(key, payload, micros, past_horizon(counter))
                )
        del steps[horizon:]
        values = self._release([step[2] for step in steps], self._noise(key, window))
        stddevs = self._stddevs
        if len(stddevs) < len(steps):
            stddevs = self._stddevs = counter.stddevs(len(steps)).tolist()
        for number, (step, value, stddev) in enumerate(
            zip(steps, values, stddevs, strict=False), start=1
        ):
            micros = step[0]
            yield TimestampedValue(
                Release(key, number, micros, value, stddev), Timestamp(micros=micros)
            )

    def _release(self, xs: list[int], noise: Any) -> list[float]:
        counter = self._intake.counter
        if len(xs) > _FEW:
            released = counter.release_lattice(np.array(xs, dtype=np.int64), noise)
            return released.tolist()
        state, values = counter.init(), []
        for x in xs:
            state, value = counter.mechanism.step(state, x, noise)
            values.append(float(value * counter.unit))
        return values
