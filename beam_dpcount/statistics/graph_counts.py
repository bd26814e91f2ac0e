"""Statistics of a graph that grows by insertions of edges, over a public set of vertices.

[FHU22], section 5.3. An element inserts the edge of two vertices; a pair counts only once, and an
element that cannot be read is an empty step. For some of them a bound on the degrees bounds what a
pair or a vertex can change: by a rule that ignores edges (triangles), by counting no more than D
edges of a vertex (stars, degrees), or by the caller's word.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import comb
from typing import Any, ClassVar

from beam_dpcount.checks import ParameterError, check_flag
from beam_dpcount.statistics.base import Additions, Codes, Statistic
from beam_dpcount.statistics.graph import CodeSet, Graph, pack, unpack
from beam_dpcount.statistics.graph_change import GraphChange
from beam_dpcount.statistics.spanning_forest import Forest
from beam_dpcount.statistics.vertices import (
    Vertices,
    check_vertices,
    place_of,
    vertex_places,
    whole,
)

MAX_TREE = 2**24
MAX_AMOUNT = 2**31
NO_PAIR = "an edge is a pair (u, v), or with its weight (u, v, weight)"
UNKNOWN = "a vertex is not in the public set of vertices"
LOOP = "an edge from a vertex to itself"
UNWEIGHTED = "this statistic has no weights: give (u, v)"
WEIGHT = "a weight is a whole number from 1 to max_weight"
DELETION = "deletions are not supported"

Masses = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class GraphStatistic(Statistic):
    """What statistics of graphs share.

    Args:
      vertices: the public vertices: a number n, for 0 .. n-1, or distinct strings.
      max_degree: D, from 1 to n-1.
      asserted: the caller's word that no vertex ever has more than D neighbours. Nothing enforces
        it, and the guarantee rests on it. It makes noise smaller and allows relation "node".

    Raises:
      ValueError, TypeError: an argument is out of range.
    """

    vertices: Vertices
    max_degree: int | None = field(default=None, kw_only=True)
    asserted: bool = field(default=False, kw_only=True)

    of_pairs: ClassVar[bool] = True
    width: ClassVar[int] = 3  # u < v and the weight
    least_degree: ClassVar[int] = 0  # of max_degree; from 1 it must be given

    def __post_init__(self) -> None:
        object.__setattr__(self, "vertices", check_vertices(self.vertices))
        check_flag("asserted", self.asserted)
        if self.max_degree is not None or self.least_degree:
            least, most = max(self.least_degree, 1), self.n - 1
            if most < least:
                raise ValueError(f"this statistic needs {least + 1} vertices or more, got {self.n}")
            self._check("max_degree", least, most, "give how many neighbours a vertex may have")
        elif self.asserted:
            raise ValueError("asserted=True asserts a bound on the degrees: give max_degree")

    def _check(self, name: str, least: int, most: int, remedy: str) -> None:
        given = getattr(self, name)
        value = whole(given)
        if value is None:
            plain = remedy.replace("{max_degree}", "max_degree")
            raise TypeError(f"{name} must be a whole number, got {given!r}: {plain}")
        if not least <= value <= most:
            problem = f"must be from {least} to {most}, got {given!r}"
            raise ParameterError(name, problem, remedy)
        object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        return self.vertices if isinstance(self.vertices, int) else len(self.vertices)

    @property
    def limit(self) -> int | None:
        """The degree that the rule of `Graph.offer` enforces; None where it does not act."""
        return None if self.asserted else self.max_degree

    @property
    def labels(self) -> tuple[str, ...] | None:
        return None

    @property
    def empty(self) -> Codes:
        return (-1, -1, 0)

    def read(self, payload: object) -> tuple[Codes, str | None]:
        if not isinstance(payload, tuple | list) or len(payload) not in (2, 3):
            return self.empty, NO_PAIR
        u, v = self._place(payload[0]), self._place(payload[1])
        if u is None or v is None:
            return self.empty, UNKNOWN
        if u == v:
            return self.empty, LOOP
        weight = 1
        if len(payload) == 3:
            given = whole(payload[2])
            if given is not None and given < 0:
                return self.empty, DELETION
            refusal = self._refuse_weight(given)
            if given is None or refusal is not None:
                return self.empty, refusal
            weight = given
        return (min(u, v), max(u, v), weight), None

    def _refuse_weight(self, weight: int | None) -> str | None:
        return UNWEIGHTED

    def _place(self, vertex: object) -> int | None:
        return place_of(vertex, self.vertices, self._places)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return vertex_places(self.vertices)

    def init(self) -> Any:
        return Graph(self.n)

    def step(self, memory: Any, codes: Codes) -> tuple[Any, Additions]:
        u, v, _ = codes
        if u < 0:
            return memory, ()
        graph = memory.offer(u, v, self.limit)
        if graph.edges is memory.edges:
            return graph, ()
        return graph, self.added(memory, u, v)

    @abstractmethod
    def added(self, graph: Graph, u: int, v: int) -> Additions:
        """What the new edge u-v adds to the statistic of a graph without it."""

    def pack(self, memory: Any) -> bytes:
        return pack(*memory.edges, *memory.halves)

    def unpack(self, data: bytes) -> Any:
        old, new, half_old, half_new = unpack(data, 4)
        return Graph(self.n, CodeSet(old, new), CodeSet(half_old, half_new))

    def change(self, relation: str) -> GraphChange:
        """What one pair ("edge") changes, or one vertex ("node"): only with asserted max_degree."""
        if relation not in GraphChange.relations:
            raise ValueError(f"the relation of graphs must be 'edge' or 'node', got {relation!r}")
        low, high = self.bounds
        if relation == "edge":
            masses, squares = self.of_edge()
            return GraphChange(
                low,
                high,
                "edge",
                masses=masses,
                squares=squares,
                alternating=self.alternating,
            )
        if not self.asserted or self.max_degree is None:
            raise ValueError(
                "relation 'node' holds only where degrees are bounded by assumption: give "
                "max_degree and asserted=True, or take relation 'edge'"
            )
        return GraphChange(low, high, "node", masses=self.of_node(self.max_degree))

    @property
    def alternating(self) -> int | None:
        """That of a GraphChange, of one pair."""
        return None

    @property
    def bounds(self) -> tuple[int, int]:
        """On what one element adds to one coordinate."""
        return 0, 1

    @abstractmethod
    def of_edge(self) -> tuple[Masses, int | None]:
        """What one pair changes, as `masses` and `squares` of a GraphChange."""

    @abstractmethod
    def of_node(self, D: int) -> Masses:
        """What one vertex of up to D neighbours changes."""

    @property
    def summary(self) -> str:
        if isinstance(self.vertices, int):
            return str(self)
        return str(replace(self, vertices=self.n))


@dataclass(frozen=True)
class Edges(GraphStatistic):
    """The number of edges. Args: see GraphStatistic; with max_degree alone, the rule acts.

    Guarantee: relation "edge": one pair changes 1 step by 1; with the rule 3 steps, Delta_2^2 is
      at most 3 c^2 + 2 g(1) <= 5 c^2. "node": D steps.
    """

    def added(self, graph: Graph, u: int, v: int) -> Additions:
        return ((0, 1),)

    def of_edge(self) -> tuple[Masses, int | None]:
        return (((1, 0),), 1) if self.limit is None else (((1, 2),), 3)

    def of_node(self, D: int) -> Masses:
        return ((D, 0),)


@dataclass(frozen=True)
class Triangles(GraphStatistic):
    """The number of triangles, among the edges that the rule of `Graph.offer` accepts, or asserted.

    Args: see GraphStatistic; max_degree is needed, from 2.

    Guarantee: relation "edge", M = D - 1: with the rule Delta_1 is 3 M columns, Delta_2^2 at most
      5 M^2 c^2; asserted M columns, M^2 c^2. "node": D (D - 1) / 2 columns.
    """

    least_degree: ClassVar[int] = 2

    def added(self, graph: Graph, u: int, v: int) -> Additions:
        # Where degrees are asserted and are not so, it could be more than counters take.
        amount = min(graph.common(u, v), self.bounds[1])
        return ((0, amount),) if amount else ()

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, (self.max_degree or 0) - 1

    def of_edge(self) -> tuple[Masses, int | None]:
        most = self.bounds[1]
        if self.limit is None:
            return ((most, 0),), None
        return ((most, 2 * most),), most**2 + max(2 * most**2, 4 * most)

    def of_node(self, D: int) -> Masses:
        return ((comb(D, 2), 0),)


@dataclass(frozen=True)
class KStars(GraphStatistic):
    """The number of k-stars, k from 1 to D: the sum over vertices of C(min(degree, D), k).

    Args: see GraphStatistic; max_degree is needed.

    Guarantee: relation "edge", C = C(D-1, k-1): Delta_1 is 4 C columns, Delta_2^2 at most
      6 C^2 c^2 + 2 C^2 g(1) <= 8 C^2 c^2; asserted 2 C columns, 4 C^2 c^2.
      "node": C(D, k) + D C columns.
    """

    k: int
    least_degree: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("k", 1, self.max_degree or 1, "stars have at most {max_degree} rays")
        if self.bounds[1] > MAX_AMOUNT:
            problem = f"one edge may make {self.bounds[1]} stars, which is beyond 2^31"
            got = f"got {self.max_degree} and {self.k}"
            remedy = f"choose a smaller {{max_degree}} or {{k}}, {got}"
            raise ParameterError("k", problem, remedy, whole=True)

    @property
    def limit(self) -> int | None:
        return None

    def added(self, graph: Graph, u: int, v: int) -> Additions:
        degrees = (graph.degree(u), graph.degree(v))
        amount = sum(comb(d, self.k - 1) for d in degrees if d < (self.max_degree or 0))
        return ((0, amount),) if amount else ()

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, 2 * comb((self.max_degree or 1) - 1, self.k - 1)

    def of_edge(self) -> tuple[Masses, int | None]:
        most = self.bounds[1]
        if self.asserted:
            return ((most, 0),), None
        return ((most, most),), most**2 + most**2 // 2

    def of_node(self, D: int) -> Masses:
        return ((comb(D, self.k) + D * comb(D - 1, self.k - 1), 0),)


@dataclass(frozen=True)
class HighDegree(GraphStatistic):
    """The number of vertices with `threshold` neighbours or more.

    Args: see GraphStatistic; with max_degree alone, the rule acts. `threshold` is from 1 to n - 1,
      and to max_degree if that is given.

    Guarantee: relation "edge": Delta_1 is 4 columns, Delta_2^2 at most 6 c^2 + 2 g(1) <= 8 c^2,
      without the rule, whatever the degrees; with it 8 columns, 32 c^2. "node": 2 D + 1 columns.
    """

    threshold: int

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.max_degree or self.n - 1
        self._check("threshold", 1, most, "no vertex has more neighbours")

    def added(self, graph: Graph, u: int, v: int) -> Additions:
        amount = sum(graph.degree(x) == self.threshold - 1 for x in (u, v))
        return ((0, amount),) if amount else ()

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, 2

    def of_edge(self) -> tuple[Masses, int | None]:
        return (((2, 2),), 6) if self.limit is None else (((4, 4),), None)

    def of_node(self, D: int) -> Masses:
        return ((D + 1, D),)


@dataclass(frozen=True)
class Degrees(GraphStatistic):
    """How many vertices have 1, 2, .. D neighbours; the last counts those with more, too.

    The vertices without neighbours are n minus the sum of all D coordinates.

    Args: see GraphStatistic; max_degree is needed.

    Guarantee: relation "edge": Delta_1 is 8 D - 4 columns, Delta_2^2 at most
      (12 D - 6) c^2 + (20 D - 18) g(1) <= (32 D - 24) c^2, whatever the degrees; asserted, from
      D = 2, 8 D - 8 columns, (12 D - 10) c^2 + (20 D - 30) g(1). Where products of a column of R
      with later ones never rise, Delta_2^2 is also at most (24 D - 16) c^2; asserted, from D = 2,
      (24 D - 24) c^2: the smaller counts. "node": 4 D^2 - 2 D - 1 columns.
    """

    least_degree: ClassVar[int] = 1

    @property
    def limit(self) -> int | None:
        return None

    @property
    def labels(self) -> tuple[str, ...] | None:
        D = self.max_degree or 0
        return (*(str(d) for d in range(1, D)), str(D) if self.asserted else f"{D}+")

    def added(self, graph: Graph, u: int, v: int) -> Additions:
        D, amounts = self.max_degree or 0, []
        for degree in (graph.degree(u), graph.degree(v)):
            if degree < D:
                amounts.append((degree, 1))
                if degree:
                    amounts.append((degree - 1, -1))
        return amounts

    @property
    def bounds(self) -> tuple[int, int]:
        return (0 if self.max_degree == 1 else -2), 2

    def of_edge(self) -> tuple[Masses, int | None]:
        D = self.max_degree or 0
        if not self.asserted:
            return ((4, 4),) * (D - 1) + ((2, 2),), 12 * D - 6
        if D == 1:
            return ((2, 0),), None
        return ((4, 4),) * (D - 2) + ((2, 4), (2, 0)), 12 * D - 10

    @property
    def alternating(self) -> int | None:
        D = self.max_degree or 0
        return max(4, 24 * D - 24) if self.asserted else 24 * D - 16

    def of_node(self, D: int) -> Masses:
        if D == 1:
            return ((2, 0),)
        return ((2 * D + 1, 2 * D + 1),) * (D - 2) + ((D + 1, 2 * D + 1), (D + 1, 0))


@dataclass(frozen=True)
class SpanningForest(GraphStatistic):
    """The cost of a minimum spanning forest; of a pair's weights the first counts.

    Args: see GraphStatistic; with max_degree alone, the rule acts. Weights are whole numbers from 1
      to W = max_weight, and 1 if left out.

    Guarantee: relation "edge": Delta_1 is 2 W columns, Delta_2^2 at most 2 W^2 c^2, without the
      rule, whatever the degrees; with it 6 W columns, 18 W^2 c^2. "node": 2 W D columns.
    """

    max_weight: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("max_weight", 1, MAX_AMOUNT, "give the largest weight of an edge")
        if self.n > MAX_TREE:
            raise ValueError(f"a forest is kept for up to 2^24 vertices, got {self.n}")

    def _refuse_weight(self, weight: int | None) -> str | None:
        return None if weight is not None and 1 <= weight <= self.max_weight else WEIGHT

    def init(self) -> Any:
        return Graph(self.n), Forest.empty(self.n)

    def step(self, memory: Any, codes: Codes) -> tuple[Any, Additions]:
        u, v, weight = codes
        if u < 0:
            return memory, ()
        before, forest = memory
        graph = before.offer(u, v, self.limit)
        if graph.edges is before.edges:
            return (graph, forest), ()
        forest, amount = forest.insert(u, v, weight)
        return (graph, forest), ((0, amount),) if amount else ()

    def added(self, graph: Graph, u: int, v: int) -> Additions:
        raise NotImplementedError("it depends on the weights of the forest: see step")

    def pack(self, memory: Any) -> bytes:
        graph, forest = memory
        return pack(*graph.edges, *graph.halves, *forest)

    def unpack(self, data: bytes) -> Any:
        old, new, half_old, half_new, parents, weights = unpack(data, 6)
        graph = Graph(self.n, CodeSet(old, new), CodeSet(half_old, half_new))
        return graph, Forest(parents, weights)

    @property
    def bounds(self) -> tuple[int, int]:
        return 1 - self.max_weight, self.max_weight

    def of_edge(self) -> tuple[Masses, int | None]:
        W = self.max_weight
        return (((W, W),) if self.limit is None else ((3 * W, 3 * W),)), None

    def of_node(self, D: int) -> Masses:
        return ((self.max_weight * D, self.max_weight * D),)
