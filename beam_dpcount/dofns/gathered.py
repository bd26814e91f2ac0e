"""Streaming counts of numbers: a bundle's elements of a key in one, before its cell takes them.

So a key with most of the elements is read by many workers, its state once a bundle, and its steps
are taken at once. Each element has its step and its release, in order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.utils import windowed_value

from beam_dpcount.dofns.elements import CountEachElement, warn_past_horizon
from beam_dpcount.dofns.intake import Intake, has_str_key
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.dofns.windows import WindowCheck

_GATHERED = 1 << 16  # elements that a bundle gathers before it passes them on

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_WindowedValue: Any = beam.DoFn.WindowedValueParam
# TimestampedValue would assign the window anew, which costs more than all the rest.
_placed: Any = windowed_value.create


class GatherNumbers(VersionedDoFn):
    """(key, value) to (key, steps): of each step its time and number, packed into 8 bytes each.

    Keys come in the order in which a bundle has them, and have the time of their earliest element.
    """

    def __init__(self, intake: Intake, check: WindowCheck) -> None:
        self._intake, self._check = intake, check

    def start_bundle(self) -> None:
        self._many = 0
        self._windows: Any = None  # the last ones seen, and the steps of their keys
        self._steps: dict[str, list[int]] = {}
        self._all: dict[Any, dict[str, list[int]]] = {}

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        if windowed.windows is not self._windows:
            self._enter(windowed.windows)
        micros = windowed.timestamp_micros
        # First what most are, in line.
        is_pair = type(element) is tuple and len(element) == 2 and type(element[0]) is str
        if not is_pair and not has_str_key(element):
            self._intake.refuse_key(element, micros)  # which raises, as nothing is collected
        key, payload = element
        found = self._intake.recalled.get(payload) if type(payload) is int else None
        (x,) = self._intake.codes(key, payload, micros)[0] if found is None else found
        steps = self._steps.get(key)
        if steps is None:
            self._steps[key] = [micros, x]
        else:
            steps += micros, x
        self._many += 1
        return self._flushed() if self._many >= _GATHERED else ()

    def finish_bundle(self) -> Iterable[windowed_value.WindowedValue]:
        return self._flushed()

    def _enter(self, windows: Any) -> None:
        self._check(windows)
        self._windows, self._steps = windows, self._all.setdefault(tuple(windows), {})

    def _flushed(self) -> Iterator[windowed_value.WindowedValue]:
        gathered = self._all
        self.start_bundle()
        for windows, keys in gathered.items():
            if windows:  # else they lie between windows, and count nothing
                for key, steps in keys.items():
                    packed = np.array(steps, dtype="<i8").tobytes()
                    yield _placed((key, packed), min(steps[::2]), windows)


class CountGathered(CountEachElement):
    """`CountEachElement` for what GatherNumbers gives: the same states, the same releases."""

    def process(
        self,
        element: tuple[str, bytes],
        windowed: Any = _WindowedValue,
        cell: Any = beam.DoFn.StateParam(CountEachElement.STATE),
    ) -> Iterator[Any]:
        (key, packed), windows, found = element, windowed.windows, cell.read()
        counter, window, kept = self._intake.counter, windows[0], found
        if not self._is_ours(found):
            kept = self._opened(found, key, window)
        rows = np.frombuffer(packed, dtype="<i8").reshape(-1, 2)
        done = kept.state[0]
        room = len(rows) if self._horizon is None else self._horizon - done
        if room < len(rows):
            self._past_horizon.inc(len(rows) - room)
            warn_past_horizon(counter)
            rows = rows[:room]
        if not room:
            return
        noise = self._draws.noise(key, window, b"")
        # State first: what is yielded must never be ahead of what is remembered.
        kept.state, values = counter.steps_lattice(kept.state, rows[:, 1], noise)
        if kept is not found:
            cell.write(kept)
        made: Any = self._intake.release_type
        stddevs = self._stddevs.of(done + 1, done + len(rows))
        steps = zip(rows[:, 0].tolist(), values, stddevs, strict=True)
        for number, (micros, value, stddev) in enumerate(steps, start=done + 1):
            yield _placed(made(key, number, micros, value, stddev), micros, windows)
