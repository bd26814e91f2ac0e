"""All releases of a finished key, one for each of its elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np

from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.noise.entropy import Draws, Noise
from beam_dpcount.noise.replay import StepNoises
from beam_dpcount.states.stacked import blocks, side_by_side
from beam_dpcount.statistics.base import Statistic

REMEMBERED = 1 << 16  # standard deviations
# Below this many steps a loop over `step` is faster than the vectorised release.
FEW = 48
_STDDEVS = 1 << 12  # standard deviations that are made at a time
# Beyond this many numbers (steps times coordinates) a vector stream is not held whole.
_MOST = 1 << 23


class WholeKey:
    """Releases a key in one vectorised call.

    Args:
      counter, statistic: what counts.
      draws: where the noise comes from.
    """

    def __init__(self, counter: LatticeCounter, statistic: Statistic, draws: Draws) -> None:
        self._counter, self._statistic, self._draws = counter, statistic, draws
        self._known: list[float] = []

    def values(
        self, key: str, window: object, packed: IntArray, identities: Iterable[object] | None
    ) -> Iterable[Any]:
        """The releases of a key, in order: an array, or made when they are asked for.

        Args:
          window: in which it is.
          packed: of each step its time and codes, shape (steps, 1 + codes).
          identities: the public ids of the elements, if they have any.
        """
        if not self._draws.digest_size:
            noise = self._draws.noise(key, window, b"")
            return self._release(packed[:, 1:], repeat(noise), noise)
        noises, counter = self._histories(key, window, packed, identities), self._counter
        whole = None if counter.draws is None else StepNoises(noises, counter.draws)
        return self._release(packed[:, 1:], noises, whole)

    @property
    def takes_several(self) -> bool:
        """Whether there is `several`: of numbers, with noise that is new at every step."""
        counter = self._counter
        return not self._draws.digest_size and counter.draws is not None and not counter.dimension

    def several(
        self, keys: Sequence[str], window: object, xs: IntArray, sizes: IntArray
    ) -> FloatArray:
        """The releases of keys, one behind the other, in one call for all of like lengths.

        Args:
          xs: what their steps count.
          sizes: how many steps each has.
        """
        counter, draws = self._counter, self._draws

        def noise_at(i: int) -> Noise:
            return draws.noise(keys[i], window, b"")

        starts = np.cumsum(sizes) - sizes
        return side_by_side(counter, xs, starts, sizes, noise_at, counter.draws or int)

    def stddevs(self, n: int) -> Iterable[float]:
        """Those of the first n steps, or more."""
        counter, few = self._counter, min(n, REMEMBERED)
        if len(self._known) < few:
            self._known = counter.stddevs(few).tolist()
        if n <= REMEMBERED:
            return self._known
        return chain(self._known, self._far_stddevs(n))

    def _far_stddevs(self, n: int) -> Iterator[float]:
        """Those beyond what is remembered, in blocks: all would be as long as the key."""
        counter = self._counter
        if not counter.goes_on:
            yield from chain.from_iterable(blocks(counter.stddevs(n)[REMEMBERED:]))
            return
        for first in range(REMEMBERED + 1, n + 1, _STDDEVS):
            yield from counter.stddevs_between(first, min(n, first + _STDDEVS - 1))

    def _release(self, numbers: IntArray, noises: Iterable[Noise], whole: Any) -> Iterable[Any]:
        """From the noise of each step, or where it is faster, from that of all at once, if any."""
        counter, statistic = self._counter, self._statistic
        few = len(numbers) <= FEW or len(numbers) * (counter.dimension or 0) > _MOST
        if whole is not None and not few:
            return counter.release_lattice(statistic.all(statistic.init(), numbers)[1], whole)
        return self._stepped(numbers, noises)

    def _histories(
        self, key: str, window: object, packed: IntArray, identities: Iterable[object] | None
    ) -> Iterator[Noise]:
        """The noise of each step, from the history up to it, as in CountEachElement."""
        draws = self._draws
        digest, untimed = draws.begin(key, window), packed.copy()
        untimed[:, 0] = 0
        data, size = untimed.tobytes(), 8 * packed.shape[1]
        for row, identity in enumerate(identities or repeat(None, len(packed))):
            digest = draws.follow(digest, identity, data[row * size : (row + 1) * size])
            yield draws.noise(key, window, digest)

    def _stepped(self, numbers: IntArray, noises: Iterable[Noise]) -> Iterator[Any]:
        """The same in little memory: a step is taken when its release is asked for."""
        counter, statistic = self._counter, self._statistic
        state, memory, following = counter.init(), statistic.init(), iter(noises)
        for first in range(0, len(numbers), FEW):
            memory, xs = statistic.all(memory, numbers[first : first + FEW])
            for x in xs.tolist() if xs.ndim == 1 else xs:
                state, value = counter.step_lattice(state, x, next(following))
                yield value
