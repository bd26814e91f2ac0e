"""The plan of keys that nobody listed, and all releases of those that are shown at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any
from zlib import crc32

import numpy as np

from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.counters.columns import Columns, NoiseOf, Sums, advance, all_ticks, counted
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.selection import Selection
from beam_dpcount.counters.vector_columns import advance as advance_vectors
from beam_dpcount.counters.vector_columns import all_ticks as all_ticks_of_vectors
from beam_dpcount.counters.vector_columns import no_keys as no_vectors
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.noise.entropy import Draws, Entropy, Noise
from beam_dpcount.noise.replay import NO_ID
from beam_dpcount.states.all_ticks import name_of, restart_of
from beam_dpcount.states.all_vectors import OfVectors
from beam_dpcount.states.wire import batches_of, pack_batch

SIDE_BY_SIDE = 1 << 13  # keys whose ticks are computed together: their vectors stay in the cache
FRESH = 10  # ticks, from the one that shows a key on, in which no interval is given
_KEPT = 1 << 23  # noisy sums of keys that are computed together


def shard_of(key: str, shards: int) -> int:
    """The shard of a key, by a hash without a secret: Python's own differs between workers."""
    return crc32(key.encode()) % shards


@dataclass(frozen=True)
class ShardPlan:
    """What counts which events of keys that nobody listed, and shows them.

    Args:
      selection: each key's counter, and when it is shown.
      clock: the ticks.
      cap: a tick's sum is clipped to +-cap, on the lattice.
      fold: events of ticks already released count at the next one; else they do not count.
      entropy: where the noise comes from.
      shards: over how many keys are spread.
      counted: what else decides which events count, for replayable noise and for states.
      alone: on the bounded path, whether each shard is a group of its own, as for `groups_of`.
      ahead, until, names, numbered: as for TickPlan.
    """

    selection: Selection
    clock: Grid
    cap: int
    fold: bool
    entropy: Entropy
    shards: int
    counted: Any = None
    alone: bool = False
    ahead: int = 1
    until: int | None = None
    names: Sequence[str] | None = None
    numbered: bool = False

    @property
    def counter(self) -> Counter:
        """Of each key."""
        return self.selection.counter

    @property
    def said(self) -> str:
        """All but counter and clock that decides what is shown, as text."""
        fingerprint = self.selection.fingerprint
        return ascii((fingerprint, self.shards, self.cap, self.fold, self.counted))

    def draws(self, path: str) -> Draws:
        """The noise of the counters, another on each path; see `TickPlan.draws`."""
        counter = self.counter
        parameters = ascii((path, self.clock, self.said, counter.fingerprint))
        return self.entropy.draws(counter.law, None, parameters)

    def tick(
        self, draws: Draws, window: Any, columns: Columns, digest: bytes, sums: dict[str, Any]
    ) -> tuple[Columns, bytes, list[tuple[str, Any]]]:
        """A shard's next tick: its columns and digest after it, and the keys that are shown.

        Args:
          draws, window: where the noise comes from.
          columns, digest: the shard's so far.
          sums: what the tick adds to each key, sorted by key.
        """
        digest = draws.follow(digest, NO_ID, self.history_of(columns.step + 1, sums))
        columns, shown = self.advance(
            columns, sums, lambda keys: self.noise(draws, keys, window, digest)
        )
        return columns, digest, shown

    # What of it is of numbers; vectors have others.

    def no_keys(self) -> Columns:
        """The columns of a shard before its first tick."""
        return Columns()

    def history_of(self, step: int, sums: dict[str, Any]) -> bytes:
        """What a tick adds to the history of a shard: all keys that it counts something of."""
        return pack_batch({(key, step): x for key, x in sums.items()}) if sums else b""

    def noise(self, draws: Draws, keys: Sequence[str], window: object, digest: bytes) -> Noise:
        """The noise of keys, next to each other."""
        return draws.of_keys(keys, window, digest)

    def advance(self, columns: Columns, sums: Any, noise: NoiseOf) -> Any:
        """The columns a tick later, and what is shown."""
        return advance(self.selection, columns, sums, noise)


@dataclass(frozen=True)
class AggregateShardPlan(OfVectors, ShardPlan):
    """A ShardPlan of vectors."""

    @property
    def place(self) -> int:
        """Of the sum that shows a key."""
        return self.joint.tested or 0

    def no_keys(self) -> Columns:
        return no_vectors()

    def history_of(self, step: int, sums: dict[str, IntArray]) -> bytes:
        entries = {(key, 0): step for key in sums}
        for key, vector in sums.items():
            there = np.flatnonzero(vector)
            found = zip(there.tolist(), vector[there].tolist(), strict=True)
            entries |= {(key, 1 + place): x for place, x in found}
        return pack_batch(entries) if entries else b""

    def noise(self, draws: Draws, keys: Sequence[str], window: object, digest: bytes) -> Noise:
        # Each sum is a stream of its own.
        sums = [f"{place} {key}" for key in keys for place in range(self.joint.width)]
        return draws.of_keys(sums, window, digest)

    def advance(self, columns: Columns, sums: Any, noise: NoiseOf) -> Any:
        return advance_vectors(self.selection, columns, sums, noise, self.place)


class AllShards:
    """All releases of keys that are shown, on bounded input.

    Args:
      plan: what counts them.
    """

    def __init__(self, plan: ShardPlan) -> None:
        self._plan, clock = plan, plan.clock
        self._draws = plan.draws("bounded")
        most = min(clock.steps, clock.all_ended(plan.until))  # of any count
        self._stddevs = plan.counter.stddevs(most).tolist()
        self._replays = self._draws.digest_size > 0  # of whatever there is, keys of few events too
        self._skipped = 0 if self._replays else plan.selection.skipped

    def rows(self, names: list[str], sums: Sums, origin: int, window: Any) -> Iterator[Any]:
        """The fields of the releases of a count, by key, then time.

        Args:
          names, sums: its keys, sorted, and what its ticks add to them.
          origin, window: when it starts, and of which window it is.
        """
        made = self._replayed if self._replays else self._all_ticks
        return made(names, sums, origin, window)

    def joined(self, batches: list[bytes]) -> tuple[list[str], Sums]:
        """The keys of batches and their sums, as `rows` takes them."""
        return joined_sums(batches, self._plan.cap, self._skipped)

    def ordered(self, known: Mapping[str, int], sums: Sums) -> tuple[list[str], Sums]:
        """The same of sums in any order."""
        return ordered_sums(known, sums, self._plan.cap, self._skipped)

    def _all_ticks(self, names: Any, sums: Sums, origin: int, window: Any) -> Iterator[Any]:
        plan = self._plan
        selection = plan.selection
        sums = counted(sums, selection.skipped)
        there, places = np.unique(sums.places, return_inverse=True)
        for first in range(0, len(there), SIDE_BY_SIDE):
            last = min(first + SIDE_BY_SIDE, len(there))
            part = slice(*np.searchsorted(places, [first, last]))
            some = Sums(places[part] - first, sums.steps[part], sums.xs[part])
            keys = [names[i] for i in there[first:last].tolist()]
            noise = self._draws.of_keys(keys, window, b"")
            found = all_ticks(selection, some, len(keys), noise, self._ended(origin))
            for place, since, values in found:
                yield from self._made(keys[place], since, values.tolist(), origin)

    def _replayed(self, names: Any, sums: Sums, origin: int, window: Any) -> Iterator[Any]:
        """The releases that CountShards makes of these sums, tick after tick, shard by shard."""
        plan, draws = self._plan, self._draws
        shards: dict[int, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
        for place, step, x in self._ticks_of(sums):
            shards[shard_of(names[place], plan.shards)][step][names[place]] = x
        series: dict[str, tuple[int, list[Any]]] = {}
        for shard, ticks in shards.items():
            columns, digest = plan.no_keys(), draws.begin(str(shard), window)
            for step in range(1, self._ended(origin) + 1):
                found = sorted(ticks.get(step, {}).items())
                tick = {key: self._addition(kept) for key, kept in found}
                columns, digest, shown = plan.tick(draws, window, columns, digest, tick)
                for key, value in shown:
                    series.setdefault(key, (step, []))[1].append(self._value_of(value))
        for key, (since, values) in sorted(series.items()):
            yield from self._made(key, since, values, origin)

    def _ended(self, origin: int) -> int:
        """How many ticks of a count are released."""
        return self._plan.clock.ended(origin, self._plan.until)

    def _ticks_of(self, sums: Sums) -> Iterator[tuple[int, int, Any]]:
        """The place of a key, a tick, and what is kept of what it adds, for all of them."""
        return zip(*(array.tolist() for array in sums), strict=True)

    def _addition(self, kept: Any) -> Any:
        """What a tick adds to a key, of what was kept of it."""
        return kept

    def _value_of(self, shown: Any) -> Any:
        """The value of a key that `ShardPlan.tick` shows."""
        return shown

    def _made(self, key: str, since: int, values: Any, origin: int) -> Iterator[Any]:
        """The fields of a key's releases, from a tick on."""
        clock, stddevs = self._plan.clock, self._stddevs
        passed, name = clock.passed_at(origin), name_of(self._plan)
        restart = restart_of(self._plan, passed + 1)
        for step, value in enumerate(values, start=since):
            micros = clock.end(origin, step)
            yield key, passed + step, micros, value, stddevs[step - 1], name, restart


class AllVectorShards(AllShards):
    """The same of vectors: `TickRow`s."""

    _plan: AggregateShardPlan

    def joined(self, batches: list[bytes]) -> tuple[list[str], Sums]:
        return self._clipped(*joined_sums(batches, LARGEST))

    def ordered(self, known: Mapping[str, int], sums: Sums) -> tuple[list[str], Sums]:
        return self._clipped(*ordered_sums(known, sums, LARGEST))

    def _clipped(self, names: list[str], sums: Sums) -> tuple[list[str], Sums]:
        limits = self._plan.limits
        caps = limits[(sums.steps - 1) % len(limits)]
        return names, Sums(sums.places, sums.steps, np.clip(sums.xs, -caps, caps))

    def _all_ticks(self, names: Any, sums: Sums, origin: int, window: Any) -> Iterator[Any]:
        plan = self._plan
        width = plan.joint.width
        steps = self._ended(origin)
        many = max(1, min(SIDE_BY_SIDE // width, _KEPT // (width * steps)))
        for first in range(0, len(names), many):
            last = min(first + many, len(names))
            part = slice(*np.searchsorted(sums.places, [first, last]))
            some = Sums(sums.places[part] - first, sums.steps[part], sums.xs[part])
            keys = names[first:last]
            noise = plan.noise(self._draws, keys, window, b"")
            found = all_ticks_of_vectors(plan.selection, some, len(keys), noise, plan.place, steps)
            for place, since, values in found:
                yield from self._made(keys[place], since, values, origin)

    def _ticks_of(self, sums: Sums) -> Iterator[tuple[int, int, Any]]:
        width = self._plan.joint.width
        ticks, coordinates = np.divmod(sums.steps - 1, width)
        arrays = sums.places, ticks, coordinates, sums.xs
        entries = zip(*(array.tolist() for array in arrays), strict=True)
        for (place, tick), found in groupby(entries, itemgetter(0, 1)):
            yield place, tick + 1, {coordinate: x for _, _, coordinate, x in found}

    def _addition(self, kept: dict[int, int]) -> IntArray:
        # Only now, as most coordinates of most ticks are 0.
        return dense(kept, self._plan.limits)

    def _value_of(self, shown: Any) -> Any:
        return shown[0]

    def _made(self, key: str, since: int, values: Any, origin: int) -> Iterator[Any]:
        clock = self._plan.clock
        stddevs = np.array(self._stddevs[since - 1 : since - 1 + len(values)])
        step = clock.passed_at(origin) + since
        return self._plan.reading.rows(key, step, np.asarray(values), stddevs, FRESH)


def joined_sums(batches: Iterable[bytes], cap: int, skipped: int = 0) -> tuple[list[str], Sums]:
    """The keys of batches, sorted, and their sums, each tick's clipped to +-cap.

    Keys whose sums, none of them negative, do not exceed `skipped` are left out; or some of them.
    """
    known: dict[str, int] = {}
    columns: list[tuple[IntArray, IntArray, IntArray]] = []
    for batch in batches:
        for keys, steps, xs in batches_of(batch):
            found = [known.setdefault(key, len(known)) for key in keys]
            columns.append((np.array(found, dtype=np.int64), steps, xs))
    places, steps, xs = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    return ordered_sums(known, Sums(places, steps, xs), cap, skipped)


def ordered_sums(
    known: Mapping[str, int], sums: Sums, cap: int, skipped: int = 0
) -> tuple[list[str], Sums]:
    """As `joined_sums`, of sums in any order; `known`: the place of each key."""
    places, steps, xs = sums
    if skipped:  # most keys of a long tail: they are not even sorted
        weights = np.bincount(places, xs)  # floats, a little off where they are very large
        much = weights >= (skipped + 1) * (1 - 1e-9)
        names = sorted(name for name, is_much in zip(known, much.tolist(), strict=True) if is_much)
        there = much[places]
        places, steps, xs = places[there], steps[there], xs[there]
    else:
        names = sorted(known)
    ranks = np.zeros(len(known), dtype=np.int64)
    ranks[[known[name] for name in names]] = np.arange(len(names))
    places = ranks[places]
    order = np.lexsort((steps, places))
    places, steps, xs = places[order], steps[order], xs[order]
    is_first = np.ones(len(places), dtype=np.bool_)
    is_first[1:] = (places[1:] != places[:-1]) | (steps[1:] != steps[:-1])
    starts = np.flatnonzero(is_first)
    if len(xs) * int(np.abs(xs).max(initial=0)) <= LARGEST:
        totals = np.add.reduceat(xs, starts)
    else:  # beyond 64 bits
        ends = [*starts[1:].tolist(), len(xs)]
        exact = [sum(xs[a:b].tolist()) for a, b in zip(starts.tolist(), ends, strict=True)]
        totals = np.array([min(max(x, -cap), cap) for x in exact], dtype=np.int64)
    return names, Sums(places[starts], steps[starts], np.clip(totals, -cap, cap))


def dense(sums: Mapping[int, int], limits: IntArray) -> IntArray:
    made = np.zeros(len(limits), dtype=np.int64)
    for column, x in sums.items():
        cap = int(limits[column])
        made[column] = min(max(x, -cap), cap)
    return made
