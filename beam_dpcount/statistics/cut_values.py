"""Values of cuts, from one release of the weights of all pairs of vertices (`CutWeights`).

All of this is post-processing and costs no privacy. `weights` is a release's value, of shape
(n (n-1) / 2,): the pairs with u before v, in the order of the statistic's n `vertices`.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.errors import chernoff
from beam_dpcount.statistics.cuts import pair_place
from beam_dpcount.statistics.vertices import check_vertices, vertex_names

MOST_EXACT = 20  # vertices up to which all 2^(n-1) cuts are compared

FloatArray = npt.NDArray[np.float64]


class Cut(NamedTuple):
    """A cut of the whole graph into two sides.

    Fields:
      value: the sum of the noisy weights between them. Biased downwards or upwards if the cut was
        chosen for being the least or the largest.
      side, other: the vertices, in their order; the first vertex is in `side`.
    """

    value: float
    side: tuple[Any, ...]
    other: tuple[Any, ...]


def cut(weights: object, vertices: object, side: Collection[object], other: object = None) -> float:
    """The noisy weight between two disjoint, non-empty sets of vertices.

    By default `other` is all vertices outside `side`. The value is unbiased, so it may be negative;
    `stddev_of_cut` is its standard deviation.

    Raises:
      ValueError: the sets meet, are empty, or hold an unknown vertex; weights have another shape.
    """
    known = _known(vertices)
    matrix = _matrix(weights, len(known))
    first = _places(side, known, "side")
    rest = [vertex for vertex in known if known[vertex] not in first]
    second = _places(rest if other is None else other, known, "other")
    if first & second:
        raise ValueError("the two sides of a cut share a vertex: give disjoint sets")
    return float(matrix[np.ix_(sorted(first), sorted(second))].sum())


def stddev_of_cut(stddev: float, side: int, other: int) -> float:
    """The standard deviation of the noise of a cut between `side` and `other` vertices.

    `stddev` is the release's: that of each of its weights, whose noises are independent.
    """
    return stddev * math.sqrt(_check_size("side", side) * _check_size("other", other))


def minimum_cut(weights: object, vertices: object) -> Cut:
    """A minimum cut of the noisy graph, by Stoer and Wagner's algorithm.

    The search needs weights from 0, so negative ones count 0 in it; the value of the cut found is
    that in the noisy weights as they are.

    Raises:
      ImportError: networkx is not installed.
      ValueError: weights have another shape.
    """
    known = _known(vertices)
    _, (side, _) = _networkx().stoer_wagner(_graph(weights, len(known)))
    return _as_cut(weights, known, set(side))


def maximum_cut(weights: object, vertices: object, seed: int = 0) -> Cut:
    """A large cut of the noisy graph.

    Up to 20 vertices all cuts are compared: it is the largest, in the noisy weights as they are.
    Beyond, networkx's one-exchange, with negative weights as 0, ends where moving no single vertex
    helps; such a cut has at least half of that weight. `seed` sets the order in which it looks at
    vertices: the result is a function of it and of the release.

    Raises:
      ImportError: networkx is not installed (beyond 20 vertices).
      ValueError: weights have another shape.
    """
    known = _known(vertices)
    if len(known) <= MOST_EXACT:
        values = _all_cuts(_matrix(weights, len(known)))
        best = int(np.argmax(values[1:])) + 1  # 0 leaves one side empty
        return _as_cut(weights, known, {place for place in range(len(known)) if best >> place & 1})
    graph = _graph(weights, len(known))
    _, (side, _) = _networkx().approximation.one_exchange(graph, weight="weight", seed=seed)
    return _as_cut(weights, known, set(side))


def cut_error_bound(
    counter: Counter,
    side: int,
    other: int,
    beta: float = 1 / 3,
    t: int | None = None,
    every: bool = True,
) -> float:
    """A bound on the error of cuts between `side` and `other` vertices.

    With probability at least 1 - beta, over the noise alone, |noisy - exact| is within it for all
    pairs of disjoint sets of these sizes, at all steps up to the horizon, at once; exact is the
    cut in the weights rounded to the unit. It is Chernoff's bound for a sum of s p independent
    noises of the largest variance of a release, sqrt(2 s p v ln(2 N T / beta)) for Gaussian noise,
    with a union over the N = C(n, s) C(n-s, p) cuts and T steps.

    Args:
      counter: calibrated for a CutWeights; its dimension is n (n-1) / 2.
      side, other: s and p, how many vertices, from 1.
      beta: the probability of a larger error; [FHU22]'s bounds have 1/3.
      t: only at this step, from 1, with its own variance; None: at all.
      every: False: for one cut, chosen without looking at the releases.

    Source: the shape of [FHU22, Corollary 1], which multiplies the logarithms and lacks n, on
      which a bound over all cuts must depend.

    Raises:
      ValueError: an argument is out of range, or the counter is not one of pairs.
    """
    pairs = counter.dimension or 0
    n = (1 + math.isqrt(1 + 8 * pairs)) // 2
    if pairs < 1 or n * (n - 1) // 2 != pairs:
        raise ValueError(f"{pairs} coordinates are not the pairs of some vertices")
    s, p = _check_size("side", side), _check_size("other", other)
    if s + p > n:
        raise ValueError(f"{s} and {p} vertices are more than the {n} that there are")
    if not 0 < beta < 1:
        raise ValueError(f"beta must be between 0 and 1, got {beta!r}: give e.g. 0.05")
    if t is None:
        norm2, steps = counter.mechanism.max_row_norm2(), counter.horizon
    else:
        counter.variance(t)  # checks t
        norm2, steps = counter.mechanism.row_norm2(t), 1
    cuts = math.comb(n, s) * math.comb(n - s, p) // (2 if s == p else 1) if every else 1
    nats = math.log(2 * steps / beta) + math.log(cuts)
    return chernoff(counter.law, norm2 * s * p, nats) * counter.grid


def _networkx() -> Any:
    try:
        return importlib.import_module("networkx")
    except ImportError:
        raise ImportError(
            "this needs networkx: pip install 'beam-dpcount[graphs]' (exact maximum cuts of up to "
            f"{MOST_EXACT} vertices, and values of given cuts, do without it)"
        ) from None


def _known(vertices: Any) -> dict[Any, int]:
    checked = check_vertices(vertices)
    listed: Sequence[Any] = range(checked) if isinstance(checked, int) else vertex_names(checked)
    return {vertex: place for place, vertex in enumerate(listed)}


def _places(chosen: object, known: dict[object, int], name: str) -> set[int]:
    if isinstance(chosen, str | bytes) or not isinstance(chosen, Collection):
        raise ValueError(f"{name} must be a collection of vertices, got {chosen!r}")
    for vertex in chosen:
        if isinstance(vertex, bool) or vertex not in known:
            raise ValueError(f"{name} holds {vertex!r}, which is not a vertex")
    if not chosen:
        raise ValueError(f"{name} is empty: a cut has a vertex on each side")
    return {known[vertex] for vertex in chosen}


def _matrix(weights: object, n: int) -> FloatArray:
    """Symmetric, shape (n, n), with 0 on the diagonal."""
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (n * (n - 1) // 2,):
        raise ValueError(
            f"{n} vertices have {n * (n - 1) // 2} pairs, but weights have shape {array.shape}"
        )
    u, v = np.array(list(itertools.combinations(range(n), 2))).T
    matrix = np.zeros((n, n))
    matrix[u, v] = matrix[v, u] = array[pair_place(n, u, v)]
    return matrix


def _graph(weights: Any, n: int) -> Any:
    """The noisy graph: complete, its negative weights 0."""
    matrix = np.maximum(_matrix(weights, n), 0)
    graph = _networkx().Graph()
    graph.add_weighted_edges_from(
        (u, v, float(matrix[u, v])) for u, v in itertools.combinations(range(n), 2)
    )
    return graph


def _all_cuts(matrix: FloatArray) -> FloatArray:
    """The values of all 2^(n-1) cuts with the last vertex outside, by the bits of the inside."""
    values = np.zeros(1)
    for k in range(len(matrix) - 1):
        inside = np.zeros(1)  # weight between k and each set of vertices before it
        for j in range(k):
            inside = np.concatenate([inside, inside + matrix[k, j]])
        values = np.concatenate([values, values + matrix[k].sum() - 2 * inside])
    return values


def _as_cut(weights: object, known: dict[object, int], side: set[int]) -> Cut:
    listed = list(known)
    if 0 not in side:
        side = set(range(len(listed))) - side
    first = tuple(vertex for vertex in listed if known[vertex] in side)
    second = tuple(vertex for vertex in listed if known[vertex] not in side)
    vertices = listed if isinstance(listed[0], str) else len(listed)
    return Cut(cut(weights, vertices, first), first, second)


def _check_size(name: str, size: object) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"{name} must be a number of vertices from 1, got {size!r}")
    return size
