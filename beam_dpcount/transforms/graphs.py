"""Private statistics of graphs that grow edge by edge, one graph per key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from apache_beam.pvalue import PCollection

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.ledger import Share
from beam_dpcount.statistics.cuts import CutWeights
from beam_dpcount.statistics.graph_counts import (
    Degrees,
    Edges,
    HighDegree,
    KStars,
    SpanningForest,
    Triangles,
)
from beam_dpcount.transforms.statistics import StatisticCount

Vertices = int | Sequence[str]


class _GraphCount(StatisticCount):
    """Refuses edges without a key, of which the first vertex would be taken for it."""

    def expand(self, elements: PCollection[Any]) -> Any:
        types: tuple[Any, ...] = getattr(elements.element_type, "tuple_types", ())
        if self._element[1] is None and types[1:] in ((str,), (int,)):
            raise TypeError(
                f"elements must be (key, (u, v)) pairs, but they are {elements.element_type}: give "
                'edges a key, e.g. with beam.Map(lambda edge: ("graph", edge))'
            )
        return super().expand(elements)


class EdgeCount(_GraphCount):
    """The private number of edges of each key's graph, after every insertion.

    PCollection[KV[str, (u, v)]] -> PCollection[Release], one release per element (or every few);
    with on_reject="collect", -> (releases, rejected). An element inserts the edge of two vertices.
    Inserting a pair again changes nothing. Order as for PrefixCount. On the streaming path a key's
    state holds its graph, 16 bytes a distinct pair, and is rewritten at every element: some 0.1 ms
    for ten thousand pairs, and so on in proportion.

    Args:
      budget: PureDP, ApproxDP, ZCDP or a share of a `Ledger`: what all releases of one key may
        cost together.
      horizon: the most elements that any key will have.
      vertices: the public vertices: a number n, for the vertices 0 .. n-1, or distinct str.
      max_degree: D. A rule then ignores edges: each vertex remembers the first D distinct pairs
        that hold it, and a pair is an edge if both its ends remember it. (To leave an edge out
        because its end is full already would be no such rule: one edge could then decide on any
        number of others.) Default: none, as this count needs no bound.
      asserted: your word that no vertex ever has more than D neighbours, in place of the rule.
        Nothing enforces it, and the guarantee rests on it.
      relation: "edge" (default), or "node", which needs `asserted`.
      every: a release after so many steps. Default 1. The state is the same, and so is the noise.
      on_reject: what happens to elements that are no edge of the vertices (a loop, an unknown
        vertex, a deletion, anything else). They are steps without an event in any case. "drop"
        (default), "collect", "raise": as for PrefixCount.
      mechanism, value, element_id, path, entropy, allow_runner: as for PrefixCount, without
        Unbounded and Sparse; `value` takes the edge out of an element's value.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for graphs of which one has all insertions of any one pair of vertices, and the other has
      empty steps there ("edge"); or of any one vertex ("node"). Public, so not protected: the keys,
      the vertices, and the number, order and timestamps of the elements. One pair changes 1 step
      by 1; with the rule, 3. docs/proofs/graphs.md has the proof. Noise and retries as for
      PrefixCount.

    Attributes:
      counter: the calibrated counter; the one in use, once the transform is applied.

    Source: [FHU22], section 5.3.

    Raises:
      ValueError, TypeError: at construction, for arguments out of range; when applied, as for
        PrefixCount.
    """

    def __init__(
        self,
        budget: Budget | Share,
        horizon: int,
        vertices: Vertices,
        *,
        max_degree: int | None = None,
        asserted: bool = False,
        relation: str = "edge",
        **options: Any,
    ) -> None:
        counted = Edges(_public(vertices), max_degree=max_degree, asserted=asserted)
        super().__init__(budget, horizon, counted, relation=relation, **options)


class TriangleCount(_GraphCount):
    """The private number of triangles of each key's graph; else as EdgeCount.

    Args:
      max_degree: D, from 2; needed. Unless `asserted`, the rule of EdgeCount acts, and triangles
        are counted among the edges that it keeps.
      budget, horizon, vertices, asserted, relation and the options: as for EdgeCount.

    Guarantee: as for EdgeCount. One pair changes the steps by 3 (D - 1) in all, or, asserted,
      D - 1; one vertex by D (D - 1) / 2.
    """

    def __init__(
        self,
        budget: Budget | Share,
        horizon: int,
        vertices: Vertices,
        *,
        max_degree: int,
        asserted: bool = False,
        relation: str = "edge",
        **options: Any,
    ) -> None:
        counted = Triangles(_public(vertices), max_degree=max_degree, asserted=asserted)
        super().__init__(budget, horizon, counted, relation=relation, **options)


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
    """

    def __init__(
        self,
        budget: Budget | Share,
        horizon: int,
        vertices: Vertices,
        k: int,
        *,
        max_degree: int,
        asserted: bool = False,
        relation: str = "edge",
        **options: Any,
    ) -> None:
        counted = KStars(_public(vertices), k, max_degree=max_degree, asserted=asserted)
        super().__init__(budget, horizon, counted, relation=relation, **options)


class HighDegreeCount(_GraphCount):
    """The private number of vertices with `threshold` neighbours or more; else as EdgeCount.

    Args:
      threshold: from 1.
      max_degree, asserted: as for EdgeCount. Leave both out, unless for relation "node": the rule
        costs twice the noise.
      budget, horizon, vertices, relation and the options: as for EdgeCount.

    Guarantee: as for EdgeCount. One pair changes the steps by 4 in all, and by 8 with the rule; one
      vertex by 2 D + 1.
    """

    def __init__(
        self,
        budget: Budget | Share,
        horizon: int,
        vertices: Vertices,
        threshold: int,
        *,
        max_degree: int | None = None,
        asserted: bool = False,
        relation: str = "edge",
        **options: Any,
    ) -> None:
        public = _public(vertices)
        counted = HighDegree(public, threshold, max_degree=max_degree, asserted=asserted)
        super().__init__(budget, horizon, counted, relation=relation, **options)


class DegreeHistogram(_GraphCount):
    """How many vertices have 1, 2, .. D neighbours, privately; else as EdgeCount.

    PCollection[KV[str, (u, v)]] -> PCollection[VectorRelease], its value aligned to `domain`: "1",
    "2", .. "D+". The last counts vertices with more neighbours, too. Those without any are left
    over: the number of vertices minus the sum of the values.

    Args:
      max_degree: D; needed.
      budget, horizon, vertices, asserted, relation and the options: as for EdgeCount.

    Guarantee: as for EdgeCount. One pair changes the steps of all coordinates by 8 D - 4 in all,
      whatever the degrees; asserted, by 8 D - 8; one vertex by 4 D^2 - 2 D - 1.

    Attributes:
      counter: the calibrated vector counter; the one in use, once the transform is applied.
      domain: what the values count, as a tuple of texts.
    """

    def __init__(
        self,
        budget: Budget | Share,
        horizon: int,
        vertices: Vertices,
        *,
        max_degree: int,
        asserted: bool = False,
        relation: str = "edge",
        **options: Any,
    ) -> None:
        counted = Degrees(_public(vertices), max_degree=max_degree, asserted=asserted)
        super().__init__(budget, horizon, counted, relation=relation, **options)


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
    """

    def __init__(
        self,
        budget: Budget | Share,
        horizon: int,
        vertices: Vertices,
        max_weight: int,
        *,
        max_degree: int | None = None,
        asserted: bool = False,
        relation: str = "edge",
        **options: Any,
    ) -> None:
        public = _public(vertices)
        counted = SpanningForest(public, max_weight, max_degree=max_degree, asserted=asserted)
        super().__init__(budget, horizon, counted, relation=relation, **options)


class CutGraph(_GraphCount):
    """A private synthetic graph per key: the weight of every pair of vertices.

    PCollection[KV[str, (u, v, weight)]] -> PCollection[VectorRelease], its value aligned to
    `domain`, the pairs. An element adds its weight, from -1 to 1, to that of the pair; (u, v) adds
    1. Any number of cuts, and whatever else follows from the weights, costs nothing more: see
    `beam_dpcount.statistics.cut_values`.

    Args:
      budget, horizon, every, mechanism and the options: as for EdgeCount. A release holds
        n (n-1) / 2 numbers: let `every` be large.
      vertices: the public vertices: a number n, for the vertices 0 .. n-1, or distinct str.
      unit: weights are rounded to multiples of it. It divides 1. Default 1: whole edges.
      relation: "add_remove" (default): one update is there, or its step is empty. "replace_one":
        it is any other, of any pair; it takes twice the noise.
      on_reject: as for EdgeCount, of what is no update: weights outside [-1, 1], too, which are
        refused, not clipped.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for streams that differ in any one update as `relation` says: not in all updates of a pair.
      Public, so not protected: the keys, the vertices, and the number, order and timestamps of the
      elements. One update changes one coordinate by at most 1, replaced two by 1 or one by 2. That
      weights never fall below 0 is your word about the data: cuts mean little without, but the
      guarantee does not rest on it. Noise and retries as for PrefixCount.

    Attributes:
      counter: the calibrated vector counter; the one in use, once the transform is applied.
      domain: the pairs, as texts "u-v".
      vertices: as they were given, for `cut_values`.

    Source: [FHU22], section 5.1.

    Raises:
      ValueError, TypeError: as for EdgeCount.
    """

    def __init__(
        self,
        budget: Budget | Share,
        horizon: int,
        vertices: Vertices,
        *,
        unit: float = 1,
        relation: str = "add_remove",
        **options: Any,
    ) -> None:
        counted = CutWeights(_public(vertices), unit)
        self.vertices = counted.vertices
        super().__init__(budget, horizon, counted, relation=relation, unit=counted.unit, **options)


def _public(vertices: Vertices) -> Any:
    """As the statistics take them: they check what they are given."""
    return cast(Any, vertices)
