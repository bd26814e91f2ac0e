"""Many finished streams of numbers released together: those of like lengths side by side.

A column is a stream, padded with empty steps at its end, which no release before them depends on.
So each comes out as it would alone, to the last bit; and each of its steps has one draw of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.noise.entropy import Noise, SystemNoise
from beam_dpcount.noise.laws import Law

_LIKE = 1.25  # lengths that differ by no more than this factor are padded to one
_SHORT = 16  # or those up to this
_AT_ONCE = 1 << 14  # steps that are lists at a time: a list takes four times what an array does


class Stream(NamedTuple):
    """The steps of one key in one window: of each its time and number, packed into 8 bytes each."""

    key: str
    window: Any
    packed: bytes | bytearray

    @property
    def steps(self) -> int:
        return len(self.packed) >> 4


def past(streams: Sequence[Stream], horizon: int | None) -> tuple[int, int]:
    """How many steps are beyond the horizon, and how many of a stream are not, at most."""
    sizes = [stream.steps for stream in streams]
    longest = max(sizes)
    if horizon is None or longest <= horizon:
        return 0, longest
    return sum(max(size - horizon, 0) for size in sizes), horizon


def released(
    counter: LatticeCounter,
    streams: Sequence[Stream],
    noise_of: Callable[[Stream], Noise],
    draws_of: Callable[[int], int],
) -> Iterator[tuple[Stream, Iterator[tuple[int, float]]]]:
    """Each stream, in the order given, with the times and the releases of its steps.

    Args:
      counter: of numbers.
      streams: their steps in any order; they are taken by time, and those of one time as they come.
      noise_of: the noise of a stream.
      draws_of: how many coordinates so many steps draw, in their order.
    """
    sizes = np.array([stream.steps for stream in streams])
    packed = [s.packed for s in streams]
    whole = packed[0] if len(packed) == 1 else b"".join(packed)
    rows = np.frombuffer(whole, dtype="<i8").reshape(-1, 2)
    micros, xs = rows[:, 0], rows[:, 1]
    falls = micros[1:] < micros[:-1]
    falls[np.cumsum(sizes)[:-1] - 1] = False
    if falls.any():
        order = np.lexsort((micros, np.repeat(np.arange(len(sizes)), sizes)))  # it is stable
        micros, xs = micros[order], xs[order]
    taken = sizes if counter.horizon is None else np.minimum(sizes, counter.horizon)
    starts = np.cumsum(sizes) - sizes
    long = taken > _AT_ONCE if counter.goes_on else taken < 0

    def noise_at(i: int) -> Noise:
        return noise_of(streams[i])

    values = side_by_side(counter, xs, starts, np.where(long, 0, taken), noise_at, draws_of)
    for i, (start, n) in enumerate(zip(starts.tolist(), taken.tolist(), strict=True)):
        stream, mine = streams[i], slice(start, start + n)
        given: Iterator[Sequence[float]] = blocks(values[mine])
        if long[i]:
            given = _in_blocks(counter, xs[mine], noise_at(i))
        yield stream, chain.from_iterable(map(zip, blocks(micros[mine]), given))


def side_by_side(
    counter: LatticeCounter,
    xs: IntArray,
    starts: IntArray,
    sizes: IntArray,
    noise_at: Callable[[int], Noise],
    draws_of: Callable[[int], int],
) -> FloatArray:
    """The releases of streams in one array, each where its steps are; 0 elsewhere.

    Args:
      counter, draws_of: as of `released`.
      xs: the steps of all streams.
      starts, sizes: where those of a stream begin, and how many of them are released.
      noise_at: the noise of a stream, by its place among them.
    """
    values = np.zeros(len(xs))
    there_are = np.flatnonzero(sizes)
    for some in (there_are[alike] for alike in _alike(sizes[there_are])):
        place, there = _places(starts[some], sizes[some])
        noises = [*map(noise_at, some.tolist())]
        noise: Noise = noises[0]
        if len(noises) > 1:
            noise = _Beside(noises, np.array([*map(draws_of, sizes[some].tolist())]))
        x = xs[place] if there is None else np.where(there, xs[place], 0)
        found = counter.release_lattice(x, noise)
        if there is None:
            values[place] = found
        else:
            values[place[there]] = found[there]
    return values


def blocks(numbers: npt.NDArray[Any]) -> Iterator[list[Any]]:
    """As lists, some at a time."""
    return (numbers[i : i + _AT_ONCE].tolist() for i in range(0, len(numbers), _AT_ONCE))


def _in_blocks(counter: LatticeCounter, xs: IntArray, noise: Noise) -> Iterator[Sequence[float]]:
    """The same of one long stream, whose noise and releases are never there all at once."""
    state = counter.init()
    for i in range(0, len(xs), _AT_ONCE):
        state, values = counter.steps_lattice(state, xs[i : i + _AT_ONCE], noise)
        yield values


def _alike(sizes: IntArray) -> Iterator[IntArray]:
    """Places of streams of like lengths, the shortest first."""
    order = np.argsort(sizes, kind="stable")
    ordered, at = sizes[order], 0
    while at < len(order):
        most = max(_SHORT, int(ordered[at] * _LIKE))
        end = int(np.searchsorted(ordered, most, side="right"))
        yield order[at:end]
        at = end


def _places(starts: IntArray, sizes: IntArray) -> tuple[Any, npt.NDArray[np.bool_] | None]:
    """Where the steps of streams are, shape (longest, streams), and which are there; None: all.

    One stream is a slice.
    """
    if len(starts) == 1:
        return slice(int(starts[0]), int(starts[0] + sizes[0])), None
    steps = np.arange(int(sizes.max()))[:, None]
    if (sizes == sizes[0]).all():
        return starts + steps, None
    there = steps < sizes
    return np.where(there, starts + steps, 0), there


class _Beside:
    """The noises of streams, of numbers, side by side: a column each, 0 behind its last draw.

    `draws`: how many coordinates each stream has.
    """

    def __init__(self, noises: Sequence[Noise], draws: IntArray) -> None:
        self._noises, self._draws = noises, draws
        first = noises[0]
        self._shared = type(first) is SystemNoise and all(noise is first for noise in noises)

    def draw(self, first: int, n: int) -> IntArray:
        z = np.zeros((n, len(self._draws)), dtype=np.int64)
        if self._shared:  # one pool for all: a draw that one of them gets is gone for the others
            there = np.arange(first, first + n)[:, None] <= self._draws
            z[there] = self._noises[0].draw(first, int(there.sum()))
            return z
        for column, (noise, draws) in enumerate(zip(self._noises, self._draws, strict=True)):
            mine = min(n, int(draws) - first + 1)
            if mine > 0:
                z[:mine, column] = noise.draw(first, mine)
        return z

    def one(self, coordinate: int) -> Any:
        return self.draw(coordinate, 1)[0]

    def for_law(self, law: Law) -> _Beside:
        return _Beside([noise.for_law(law) for noise in self._noises], self._draws)
