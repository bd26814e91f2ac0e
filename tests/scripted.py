"""Noise and bytes that tests can predict. Nothing in the package can reach this module."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from beam_dpcount.noise.entropy import Entropy, SystemNoise
from beam_dpcount.noise.laws import Law
from beam_dpcount.states.codecs import StateCodec


class Script:
    """Noise read from an array, shape (n,) or (n, dim); records which coordinates were drawn."""

    def __init__(self, z: Any) -> None:
        self.z = np.asarray(z, dtype=np.int64)
        self.drawn: list[int] = []

    def draw(self, first: int, n: int) -> np.ndarray:
        if first + n - 1 > len(self.z):
            raise IndexError(f"the script ends at coordinate {len(self.z)}")
        self.drawn += range(first, first + n)
        return self.z[first - 1 : first - 1 + n]

    def one(self, coordinate: int) -> Any:
        (z,) = self.draw(coordinate, 1)
        return int(z) if self.z.ndim == 1 else z

    def for_law(self, law: Law) -> Script:
        return self


def random_script(n: int, dimension: int | None = None, seed: int = 1, spread: int = 50) -> Script:
    """A script of n coordinates, uniform in [-spread, spread]."""
    shape = n if dimension is None else (n, dimension)
    return Script(np.random.default_rng(seed).integers(-spread, spread + 1, shape))


def _bounds_of(window: Any) -> str:
    """A window as Beam prints it; those of states/windows.py are of the same names and bounds."""
    if type(window).__name__ != "IntervalWindow":
        return "GlobalWindow"
    return f"[{window.start.micros / 1e6}, {window.end.micros / 1e6})"


class KeyedScript:
    """Noise that is a fixed function of key, window and coordinate."""

    def __init__(self, key: str, window: Any, dimension: int | None, spread: int) -> None:
        self._seed = zlib.crc32(repr((key, _bounds_of(window))).encode())
        self._dimension, self._spread = dimension, spread

    def one(self, coordinate: int) -> Any:
        shape = () if self._dimension is None else (self._dimension,)
        rng = np.random.default_rng((self._seed, coordinate))
        z = rng.integers(-self._spread, self._spread + 1, shape)
        return int(z) if self._dimension is None else z

    def draw(self, first: int, n: int) -> np.ndarray:
        shape = (0,) if self._dimension is None else (0, self._dimension)
        drawn = [self.one(i) for i in range(first, first + n)]
        return np.array(drawn, dtype=np.int64) if drawn else np.zeros(shape, dtype=np.int64)

    def for_law(self, law: Law) -> KeyedScript:
        return self


class ScriptedEntropy(Entropy):
    """Gives every (key, window) its own predictable noise, on every path and runner."""

    def __init__(self, spread: int = 50) -> None:
        self._spread = spread

    def source(self, law: Law, dimension: int | None) -> Any:
        return lambda key, window: KeyedScript(key, window, dimension, self._spread)


class SeededBytes:
    """A reproducible source of uniform random bytes, in place of the operating system's."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, n: int) -> bytes:
        return self._rng.bytes(n)


class SeededNoise(SystemNoise):
    """System noise's laws from a seeded source."""

    def __init__(self, law: Law, seed: int, dimension: int | None = None) -> None:
        super().__init__(law, dimension)
        self._bytes = SeededBytes(seed)

    def draw(self, first: int, n: int) -> np.ndarray:
        drawn = self._law.sample(n * (self._dimension or 1), self._bytes)
        return drawn if self._dimension is None else drawn.reshape(n, self._dimension)

    def one(self, coordinate: int) -> Any:
        (z,) = self.draw(coordinate, 1)
        return int(z) if self._dimension is None else z

    def for_law(self, law: Law) -> SeededNoise:
        other = SeededNoise(law, 0, self._dimension)
        other._bytes = self._bytes  # one stream of bytes, so that no draw repeats another
        return other


def resumed(counter: Any, xs: np.ndarray, noise: Script) -> tuple[list[Any], list[Any]]:
    """States and values of a stream whose state goes through bytes after every step."""
    codec, data, states, values = StateCodec(counter), None, [], []
    for x in xs.tolist() if xs.ndim == 1 else xs:
        state = counter.init() if data is None else codec.decode(data)
        state, value = counter.step(state, x, noise)
        data = codec.encode(state)
        states.append(state)
        values.append(value)
    return states, values
