"""Private statistics of graphs that grow edge by edge, one graph per key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from beam_dpcount.statistics.cuts import CutWeights
from beam_dpcount.statistics.graph_counts import (
    Degrees,
    Edges,
    HighDegree,
    KStars,
    SpanningForest,
    Triangles,
)
from beam_dpcount.transforms.elements import NamedCount

Vertices = int | Sequence[str]


@dataclass(eq=False, repr=False)
class _GraphCount(NamedCount):
    """A count in a graph of distinct pairs."""

    vertices: Vertices
    _: KW_ONLY
    max_degree: int | None = None
    asserted: bool = False
    relation: str = "edge"


@dataclass(eq=False, repr=False)
class EdgeCount(_GraphCount):
    """The private number of edges of each key's graph, after every insertion.

    PCollection[KV[str, (u, v)]] -> PCollection[Release], one release per element (or every few);
    with on_reject="collect", -> (releases, rejected). An element inserts the edge of two vertices.
    Inserting a pair again changes nothing. Order as for PrefixCount. On the streaming path a key's
    state holds its graph, 16 bytes a distinct pair, and is rewritten at every element: some 0.1 ms
    for ten thousand pairs, and in proportion.

    Args:
      vertices: the public vertices: a number n, for the vertices 0 .. n-1, or distinct str.
      max_degree: D. A rule then ignores edges: each vertex remembers the first D distinct pairs
        that hold it, and a pair is an edge if both its ends remember it. (If an edge were ignored
        because its end is full, one edge could decide on any number of others.) Default: none, as
        this count needs no bound.
      asserted: your word that no vertex ever has more than D neighbours, in place of the rule.
        Nothing enforces it, and the guarantee rests on it.
      relation: "edge" (default), or "node", which needs `asserted`.
      on_reject: as for PrefixCount, for elements that are not an edge of the vertices: a loop, an
        unknown vertex, a deletion, anything else. They are steps without an event in any case.
      budget, horizon, every, mechanism, value, element_id, path, entropy, allow_runner, users: as
        for PrefixCount, without Unbounded and Sparse; `value` takes the edge out of an element's
        value. With `users`, an element costs twice an edge: another person's may insert the same.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for graphs of which one has all insertions of any one pair of vertices, and the other has
      empty steps there ("edge"); or of any one vertex ("node"). Public, so not protected: the keys,
      the vertices, and the number, order and timestamps of the elements. One pair changes 1 step
      by 1; with the rule, 3. docs/proofs/graphs.md has the proof. Noise and retries as for
      PrefixCount.

    Attributes and errors: as for PrefixCount.

    Source: [FHU22], section 5.3.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     edges = pipeline | beam.Create([("graph", (0, 1)), ("graph", (1, 2))])
      ...     releases = edges | dp.EdgeCount(dp.ZCDP(0.5), 1000, vertices=3)
      ...     _ = releases | beam.Map(lambda release: print(release.key, release.step))
      graph 1
      graph 2
    """

    _kind = Edges


@dataclass(eq=False, repr=False)
class TriangleCount(_GraphCount):
    """The private number of triangles of each key's graph; else as EdgeCount.

    Args:
      max_degree: D, from 2; needed. Unless `asserted`, the rule of EdgeCount acts, and triangles
        are counted among the edges that it keeps.
      budget, horizon, vertices, asserted, relation and the options: as for EdgeCount.

    Guarantee: as for EdgeCount. One pair changes the steps by 3 (D - 1) in all, or, asserted,
      D - 1; one vertex by D (D - 1) / 2.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.TriangleCount(dp.ZCDP(0.5), 1000, 100, max_degree=5)
      >>> count.statistic.summary
      'Triangles(vertices=100, max_degree=5, asserted=False)'
    """

    _: KW_ONLY
    max_degree: int = field()

    _kind = Triangles


@dataclass(eq=False, repr=False)
class KStarCount(_GraphCount):
    """The private number of k-stars, a centre and k of its neighbours; else as EdgeCount.

    Of a vertex's neighbours the first D count, and no edge is ignored: the sum over vertices of
    C(min(degree, D), k).

    Args:
      k: the number of rays, from 1 to D.
      max_degree: D; needed.
      budget, horizon, vertices, asserted, relation and the options: as for EdgeCount.

    Guarantee: as for EdgeCount. One pair changes the steps by 4 C(D-1, k-1) in all, or, asserted,
      by 2 C(D-1, k-1); one vertex by C(D, k) + D C(D-1, k-1).

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.KStarCount(dp.ZCDP(0.5), 1000, 100, 2, max_degree=5)
      >>> count.statistic.summary
      'KStars(vertices=100, max_degree=5, asserted=False, k=2)'
    """

    k: int
    _: KW_ONLY
    max_degree: int = field()

    _kind = KStars


@dataclass(eq=False, repr=False)
class HighDegreeCount(_GraphCount):
    """The private number of vertices with `threshold` neighbours or more; else as EdgeCount.

    Args:
      threshold: from 1.
      max_degree, asserted: as for EdgeCount. Leave both out, unless for relation "node": the rule
        costs twice the noise.
      budget, horizon, vertices, relation and the options: as for EdgeCount.

    Guarantee: as for EdgeCount. One pair changes the steps by 4 in all, and by 8 with the rule; one
      vertex by 2 D + 1.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.HighDegreeCount(dp.ZCDP(0.5), 1000, 100, threshold=3)
      >>> count.statistic.summary
      'HighDegree(vertices=100, max_degree=None, asserted=False, threshold=3)'
    """

    threshold: int

    _kind = HighDegree


@dataclass(eq=False, repr=False)
class DegreeHistogram(_GraphCount):
    """How many vertices have 1, 2, .. D neighbours, privately; else as EdgeCount.

    PCollection[KV[str, (u, v)]] -> PCollection[VectorRelease], its value aligned to `labels`: "1",
    "2", .. "D+". The last counts vertices with more neighbours, too. Those without any are left
    over: the number of vertices minus the sum of the values.

    Args:
      max_degree: D; needed.
      budget, horizon, vertices, asserted, relation and the options: as for EdgeCount.

    Guarantee: as for EdgeCount. One pair changes the steps of all coordinates by 8 D - 4 in all,
      whatever the degrees; asserted, by 8 D - 8; one vertex by 4 D^2 - 2 D - 1.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.DegreeHistogram(dp.ZCDP(0.5), 1000, 100, max_degree=3)
      >>> count.labels
      ('1', '2', '3+')
    """

    _: KW_ONLY
    max_degree: int = field()

    _kind = Degrees


@dataclass(eq=False, repr=False)
class SpanningForestCost(_GraphCount):
    """The private cost of a minimum spanning forest of each key's graph; else as EdgeCount.

    Elements are (u, v, weight), or (u, v) for weight 1; of a pair's weights the first counts.

    Args:
      max_weight: W; weights are whole numbers from 1 to W. Others are refused, not clipped.
      max_degree, asserted: as for EdgeCount. Leave both out, unless for relation "node": the rule
        costs three times the noise.
      budget, horizon, vertices, relation and the options: as for EdgeCount.

    Guarantee: as for EdgeCount. One pair changes the steps by 2 W in all, and by 6 W with the rule;
      one vertex by 2 W D.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.SpanningForestCost(dp.ZCDP(0.5), 1000, 100, max_weight=9)
      >>> count.statistic.summary
      'SpanningForest(vertices=100, max_degree=None, asserted=False, max_weight=9)'
    """

    max_weight: int

    _kind = SpanningForest


@dataclass(eq=False, repr=False)
class CutGraph(NamedCount):
    """A private synthetic graph per key: the weight of every pair of vertices.

    PCollection[KV[str, (u, v, weight)]] -> PCollection[VectorRelease], its value aligned to
    `labels`, the pairs. An element adds its weight, from -1 to 1, to that of the pair; (u, v) adds
    1. Any number of cuts, or anything else computed from the weights, costs nothing more: see
    `beam_dpcount.statistics.cut_values`.

    Args:
      budget, horizon, every, mechanism and the options: as for EdgeCount. A release holds
        n (n-1) / 2 numbers: let `every` be large.
      vertices: the public vertices: a number n, for the vertices 0 .. n-1, or distinct str.
      unit: weights are rounded to multiples of it. It divides 1. Default 1: whole edges.
      relation: "replace_one" (default): one update is any other, of any pair. "add_remove": it is
        there, or its step is empty, which takes half the noise.
      on_reject: as for EdgeCount. Weights outside [-1, 1] are refused too, not clipped.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for streams that differ in any one update as `relation` says: not in all updates of a pair.
      Public, so not protected: the keys, the vertices, and the number, order and timestamps of the
      elements. One update changes one coordinate by at most 1; replacing it, two by 1 or one by 2.
      That weights never fall below 0 is your word about the data: cuts mean little otherwise, but
      the guarantee does not rest on it. Noise and retries as for PrefixCount.

    Attributes:
      counter: as for PrefixCount, of vectors.
      labels: the pairs, as texts "u-v".
      vertices: as they were given, for `cut_values`.

    Source: [FHU22], section 5.1.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.CutGraph(dp.ZCDP(0.5), 1000, ["a", "b", "c"], every=100)
      >>> count.labels
      ('a-b', 'a-c', 'b-c')
    """

    vertices: Vertices
    _: KW_ONLY
    unit: float = 1

    _kind = CutWeights
