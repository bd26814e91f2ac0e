"""Where noise comes from: `Noise` hands out the draws of one stream, `Entropy` makes them."""

from __future__ import annotations

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from beam_dpcount.noise.laws import Law
from beam_dpcount.noise.tables import IntArray

# Draws cost the less the more are made at once, up to _MOST of them: fewer at first, for a stream
# that takes few, and twice as many each time.
_FIRST, _MOST = 1 << 12, 1 << 15
_LARGE = 256  # fewer draws than these are taken from a pool one by one
_POOLS = 8  # pools of vectors of one stream's numbers


class Noise(Protocol):
    """One stream's noise: coordinates from 1, as rows of Rx are completed, each asked for once."""

    def draw(self, first: int, n: int) -> IntArray:
        """Coordinates first .. first+n-1, shape (n,), or (n, dimension) for vector streams."""

    def one(self, coordinate: int) -> Any:
        """One coordinate: a Python int, or shape (dimension,) for vector streams."""

    def for_law(self, law: Law) -> Noise:
        """The same stream's noise of another law, for mechanisms that mix several."""


class Entropy(ABC):
    """Makes the noise of every stream of a pipeline."""

    @abstractmethod
    def source(self, law: Law, dimension: int | None) -> Callable[[str, Any], Noise]:
        """A function of (key, window) that gives the noise of one key in one window."""

    def named(self, name: str) -> Entropy:
        """The same for one of several counts; replayable noise differs from name to name."""
        return self

    # Whether noise follows from the history of a stream, and comes from `replay` instead.
    is_replayable: ClassVar[bool] = False

    @property
    def run_id(self) -> str:
        """Of replayable noise: which count of which data it is for; else empty."""
        return ""

    @property
    def noise_mark(self) -> str:
        """A keyed digest that counts share which draw the same noise from equal histories; empty
        where noise is new in every run."""
        return ""

    @property
    def placement_key(self) -> bytes:
        """A key, of the secret, that places people in shards; empty where there is no secret."""
        return b""

    def replay(self, law: Law, dimension: int | None, parameters: str) -> Any:
        """Where `is_replayable`: what digests histories, and makes noise of them."""
        raise TypeError(f"the noise of {self!r} is not replayable")

    def draws(self, law: Law, dimension: int | None, parameters: str) -> Draws:
        """The noise of one counter on one worker; `parameters`: all that releases depend on."""
        return Draws(self.source(law, dimension))


class Draws:
    """The noise of one counter on one worker, new at every step; there are no histories."""

    digest_size = 0  # of a history, in bytes

    def __init__(self, source: Callable[[str, Any], Noise]) -> None:
        self._source = source

    def begin(self, key: str, window: object) -> bytes:
        """The digest of the empty history of one key in one window."""
        return b""

    def follow(self, digest: bytes, identity: object, value: bytes) -> bytes:
        """The digest of a history and one more element, of this public id and value."""
        return b""

    def noise(self, key: str, window: object, digest: bytes) -> Noise:
        """The noise of the coordinates that the last element of a history completes."""
        return self._source(key, window)

    def of_keys(self, keys: Sequence[str], window: object, digest: bytes) -> Noise:
        """The same of many keys whose counters are one vector, a column each."""
        return SideBySide([self._source(key, window) for key in keys])

    def of_each(self, keys: Sequence[str], window: object, digests: Sequence[bytes]) -> Noise:
        """The same where each key has a history of its own; of vectors, all of a key's numbers."""
        found = zip(keys, digests, strict=True)
        return SideBySide([self.noise(key, window, digest) for key, digest in found])


class SideBySide:
    """The noises of many streams, of numbers or vectors, as that of one of vectors."""

    def __init__(self, noises: Sequence[Noise]) -> None:
        self._noises = noises

    def draw(self, first: int, n: int) -> IntArray:
        drawn = [noise.draw(first, n) for noise in self._noises]
        columns = [one if one.ndim == 2 else one[:, None] for one in drawn]
        return np.concatenate(columns, axis=1)

    def one(self, coordinate: int) -> Any:
        drawn = [np.atleast_1d(noise.one(coordinate)) for noise in self._noises]
        return np.concatenate(drawn).astype(np.int64, copy=False)

    def for_law(self, law: Law) -> SideBySide:
        return SideBySide([noise.for_law(law) for noise in self._noises])


class SystemNoise:
    """Fresh draws from the operating system's entropy; nothing is ever drawn twice.

    Few draws come from a pool of samples, which leave it by an atomic `list.pop`: threads never
    share one. The pool is emptied in a forked child, and left behind by pickle and copy.
    """

    def __init__(self, law: Law, dimension: int | None = None, size: int = _FIRST) -> None:
        self._law, self._dimension = law, dimension
        self._pool: list[Any] = []
        self._size = size  # how many numbers fill it next
        self._others: dict[Law, SystemNoise] = {}
        self._vectors: dict[int, SystemNoise] = {}
        _live.add(self)

    def draw(self, first: int, n: int) -> IntArray:
        if 0 < n * (self._dimension or 1) < _LARGE:
            return np.array([self.one(first + i) for i in range(n)], dtype=np.int64)
        return self._drawn(n)

    def _drawn(self, n: int) -> IntArray:
        try:
            drawn = self._law.sample(n * (self._dimension or 1))
        except (OSError, NotImplementedError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise RuntimeError(
                f"the operating system gives no random numbers here ({reason}): nothing is "
                "released without them; repair the machine, or its sandbox, and run again"
            ) from None
        return drawn if self._dimension is None else drawn.reshape(n, self._dimension)

    def one(self, coordinate: int) -> Any:
        while True:
            try:
                return self._pool.pop()
            except IndexError:
                process, size = os.getpid(), self._size
                self._size = min(2 * size, _MOST)
                drawn = self._drawn(max(1, size // (self._dimension or 1)))
                fresh = drawn.tolist() if self._dimension is None else list(drawn)
                if os.getpid() == process:  # a signal handler may have forked meanwhile
                    self._pool.extend(fresh)

    def vectors(self, dimension: int) -> SystemNoise:
        """Vectors of such numbers, from a pool of their own, which one vector fills at first."""
        noise = self._vectors.get(dimension)
        if noise is None:
            if len(self._vectors) >= _POOLS:
                self._vectors.clear()
            noise = SystemNoise(self._law, dimension, dimension)
            noise = self._vectors.setdefault(dimension, noise)
        return noise

    def numbers(self) -> tuple[SystemNoise, int]:
        """A stream of numbers of this law, and how many of them a draw here has."""
        if self._dimension is None:
            return self, 1
        return SystemNoise(self._law), self._dimension

    def for_law(self, law: Law) -> SystemNoise:
        if law == self._law:
            return self
        if law not in self._others:
            self._others.setdefault(law, SystemNoise(law, self._dimension))
        return self._others[law]

    def __reduce__(self) -> tuple[type[SystemNoise], tuple[Law, int | None]]:
        return SystemNoise, (self._law, self._dimension)

    def __repr__(self) -> str:
        return f"SystemNoise({self._law!r}, dimension={self._dimension})"


_live: weakref.WeakSet[SystemNoise] = weakref.WeakSet()


def _forget_all() -> None:
    for noise in list(_live):
        noise._pool.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork either
    os.register_at_fork(after_in_child=_forget_all)


class _SystemDraws(Draws):
    """`Draws` whose streams share one pool."""

    def __init__(self, noise: SystemNoise) -> None:
        super().__init__(lambda key, window: noise)
        self._numbers, self._width = noise.numbers()

    def of_keys(self, keys: Sequence[str], window: object, digest: bytes) -> Noise:
        return _FromPool(self._numbers, len(keys))

    def of_each(self, keys: Sequence[str], window: object, digests: Sequence[bytes]) -> Noise:
        return _FromPool(self._numbers, len(keys) * self._width)


class _FromPool:
    """Vectors of a stream of numbers' own draws; small ones are put together from its pool."""

    def __init__(self, noise: SystemNoise, dimension: int) -> None:
        self._noise, self._dimension = noise, dimension

    def draw(self, first: int, n: int) -> IntArray:
        return self._noise.draw(first, n * self._dimension).reshape(n, self._dimension)

    def one(self, coordinate: int) -> Any:
        if self._dimension >= _LARGE:
            return self._noise.vectors(self._dimension).one(coordinate)
        return np.array(
            [self._noise.one(coordinate) for _ in range(self._dimension)], dtype=np.int64
        )

    def for_law(self, law: Law) -> _FromPool:
        return _FromPool(self._noise.for_law(law), self._dimension)


class SystemEntropy(Entropy):
    """The default: every draw is new, in a retried bundle too (docs/proofs/noise.md, "Retries")."""

    def source(self, law: Law, dimension: int | None) -> Callable[[str, Any], Noise]:
        # One pool serves all keys: a draw that one of them got is gone for the others.
        noise = SystemNoise(law, dimension)
        return lambda key, window: noise

    def draws(self, law: Law, dimension: int | None, parameters: str) -> Draws:
        return _SystemDraws(SystemNoise(law, dimension))

    def __repr__(self) -> str:
        return "SystemEntropy()"
