"""All neighbouring streams of few letters, and how far apart a statistic of them is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np

from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.mechanisms.simple import Simple2
from beam_dpcount.statistics.base import Statistic


class Alternating(Simple2):
    """An encoder whose columns are 1 and -1 in turn: their products are as large as can be."""

    is_nonnegative = False

    def encoder(self, n: int) -> np.ndarray:
        return (-1.0) ** np.arange(n)[None, :]


def streams(letters: int, steps: int) -> np.ndarray:
    """All sequences of codes 0 .. letters, shape ((letters + 1) ** steps, steps)."""
    return np.array(list(product(range(letters + 1), repeat=steps)), dtype=np.int64)


def counted(statistic: Statistic, codes: np.ndarray) -> np.ndarray:
    """What each stream's steps add, shape (streams, steps, dimension)."""
    rows = [statistic.all(statistic.init(), stream[:, None])[1] for stream in codes]
    return np.array(rows, dtype=np.int64).reshape(*codes.shape, -1)


def differences(statistic: Statistic, letters: int, steps: int, relation: str) -> np.ndarray:
    """x - x' of all neighbours, each once: distinct arrays, shape (n, steps, dimension)."""
    x = counted(statistic, streams(letters, steps)).astype(np.int8)
    pairs = [x[a] - x[b] for a, b in _places(letters, steps, relation)]
    flat = np.concatenate(pairs).reshape(-1, x[0].size)
    # as bytes: sorting rows of numbers takes far longer
    _, first = np.unique(np.ascontiguousarray(flat).view(f"V{flat.shape[1]}"), return_index=True)
    return flat[np.sort(first)].reshape(-1, *x.shape[1:])


def _places(letters: int, steps: int, relation: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices into `streams` of pairs that differ in one step."""
    index = np.arange((letters + 1) ** steps).reshape((letters + 1,) * steps)
    for step in range(steps):
        for old, new in combinations(range(letters + 1), 2):
            if relation == "replace_one" or old == 0:
                yield index.take(new, step).ravel(), index.take(old, step).ravel()


def neighbours(
    statistic: Statistic, letters: int, steps: int, relation: str
) -> tuple[np.ndarray, np.ndarray]:
    """What all neighbouring streams add, each shape (pairs, steps, dimension), as `counted`.

    For relation "edge" a letter is a pair of vertices, and all its insertions are there or empty.
    """
    codes = streams(letters, steps)
    if relation != "edge":
        x = counted(statistic, codes)
        pairs = [np.array(pair) for pair in _places(letters, steps, relation)]
        a, b = np.concatenate(pairs, axis=1)
        return x[a], x[b]
    n = 2 + max(0, letters - 1) // 2  # enough vertices
    edges = [(-1, -1, 0), *((u, v, 1) for u, v in combinations(range(n), 2))][: letters + 1]
    rows = [statistic.all(statistic.init(), np.array(edges)[stream])[1] for stream in codes]
    x = np.array(rows, dtype=np.int64).reshape(*codes.shape, -1)
    base = (letters + 1) ** np.arange(steps - 1, -1, -1)
    with_pair = [np.flatnonzero((codes == pair).any(axis=1)) for pair in range(1, letters + 1)]
    emptied = [
        np.where(codes[place] == pair, 0, codes[place]) @ base
        for pair, place in enumerate(with_pair, start=1)
    ]
    return x[np.concatenate(with_pair)], x[np.concatenate(emptied)]


def through(mechanism: Mechanism, d: np.ndarray) -> np.ndarray:
    """||R d||_2^2 over all coordinates, of each difference d, shape (n,)."""
    rows = mechanism.encoder(d.shape[1])
    return np.square(np.einsum("rs,nsw->nrw", rows, d, optimize=True)).sum(axis=(1, 2))
