"""Private running statistics of graphs that grow edge by edge, out of an event log.

Reads CSV, JSON lines or Parquet; a row inserts the edge between the two vertices in its columns
into the graph of its key, without --key into the one graph, "all". Writes after every row, or every
so many, a private statistic of each key's graph: key, step, timestamp, value, stddev; or in place
of value a column for each degree (--what degrees) or pair of vertices (--what cuts).
Graphs are undirected. A pair that came before inserts nothing; for --what cuts rows add up.
Rows of a key are taken in the order of their timestamps (ties: by file and row), or without
--timestamp in the order of the files.
The keys, the vertices and the number, order and times of the rows are public; which edges they
insert is protected.

A row without an edge (an unknown vertex, the same one twice, a weight out of
range) inserts nothing, but is a step. A null in Parquet is not a vertex; as a key it stops the
command. Options that --help-all does not list go to Beam, e.g. --runner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import beam_dpcount as dp
from beam_dpcount.arguments.argument import parsed
from beam_dpcount.arguments.table import Changes
from beam_dpcount.checks import check_whole
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.figures.pictures import Degrees, Panel, Picture, Weights
from beam_dpcount.commands.files import formats
from beam_dpcount.commands.files.formats import InputError, number, text, whole
from beam_dpcount.commands.report import Estimate, how_often, many, unchecked
from beam_dpcount.commands.start import command
from beam_dpcount.commands.task import Listed, Task, texts_of
from beam_dpcount.counters.counter import Counter
from beam_dpcount.statistics.cut_values import cut_error_bound, stddev_of_cut

_RELEASES = 100  # of --what cuts by default, up to the horizon
_KEYS = 6  # drawn
_MOST_CUT = 500  # vertices of --what cuts: each pair is a column


class What(NamedTuple):
    """A statistic that --what names."""

    noun: str  # what is counted
    transform: str  # a name of the library
    needs: tuple[str, ...] = ()  # parameters of the transform; but `weight` is the column
    takes: tuple[str, ...] = ("max_degree", "asserted")  # optional ones
    relations: tuple[str, ...] = ("edge", "node")  # the default first

    @property
    def parameters(self) -> tuple[str, ...]:
        return *self.needs, *self.takes


WHAT = {
    "edges": What("edges", "EdgeCount"),
    "triangles": What("triangles", "TriangleCount", ("max_degree",)),
    "kstars": What("k-stars", "KStarCount", ("max_degree", "k")),
    "highdegree": What("vertices of high degree", "HighDegreeCount", ("threshold",)),
    "degrees": What("vertices by degree", "DegreeHistogram", ("max_degree",)),
    "forest": What(
        "cost of a minimum spanning forest",
        "SpanningForestCost",
        ("max_weight",),
        ("max_degree", "asserted", "weight"),
    ),
    "cuts": What(
        "weights of pairs", "CutGraph", (), ("unit", "weight"), ("replace_one", "add_remove")
    ),
}
_PARAMETERS = ("max_degree", "asserted", "k", "threshold", "max_weight", "unit", "weight")


class Graph(Task):
    """Of graphs that grow edge by edge."""

    name, known = "graph", "the vertices, and the number, order and times of the rows."
    example = r"""
    beam-dpcount graph --input friends.csv --edge from to --vertices 1000 \
      --what edges --horizon 100000 --epsilon 1 --delta 1e-6 \
      --output out/edges.csv
    """

    counts = "elements thinned"
    own = (
        *parsed(
            "input",
            """
            edge COLUMN COLUMN: list, required
                the two vertices of each row
            weight COLUMN: numbers, more
                with --what forest (whole numbers from 1) or cuts (from -1 to 1); default: 1
            vertices N: whole, required, one_of=vertices, example=1000
                the (public) vertices are the whole numbers from 0 to N-1
            vertices_file FILE: path, one_of=vertices, more
                the vertices are the texts of this file, one per line; blank lines are skipped
            """,
        ),
        *parsed(
            "count",
            f"""
            what {{{",".join(WHAT)}}}: text, required
                edges; triangles; kstars: stars of -k rays; highdegree: vertices of --threshold
                neighbours or more; degrees: how many vertices have 1, 2, .. --max-degree
                neighbours; forest: cost of a minimum spanning forest; cuts: the weight of every
                pair of vertices, from which the value of every cut follows
            max_degree D: whole, example=100
                edges, triangles, highdegree, forest: of each vertex only the first D pairs count
                that rows name, and an edge that is not among those of both its ends is left out;
                kstars: D rays of a vertex count; degrees: the last column holds those of D or more.
                Needed for triangles, kstars and degrees
            asserted: switch
                your word that no vertex has more than --max-degree neighbours, for less noise and
                for --relation node; nothing enforces it, and the guarantee rests on it
            k K: whole, short=k, example=2
                kstars: the rays, from 1 to --max-degree
            threshold N: whole, example=10
                highdegree: the least neighbours
            max_weight W: whole, example=10
                forest: the largest weight of an edge
            unit U: positive, example=0.01, more
                cuts: weights are rounded to multiples of it; it divides 1 (default 1)
            """,
        ),
    )
    changes: ClassVar[Changes] = {
        "key": {"help": "the (public) keys, a graph each; default: one graph"},
        "asserted": {"default": None},
        "every": {
            "help": "a release after every M rows of a key; the budget is for all releases, and "
            "the noise does not depend on M. Default: 1; for cuts, whose releases are large, "
            f"T/{_RELEASES}, or 1"
        },
        "relation": {
            "choices": ("edge", "node", "replace_one", "add_remove"),
            "default": None,
            "help": "what is protected: edge (default), all rows of any one pair of vertices; "
            "node, all rows of any one vertex (needs --asserted). For cuts: replace_one (default), "
            "that any one row has any other edge and weight; add_remove, whether it counts at all, "
            "which takes half the noise",
        },
    }

    def check(self) -> None:
        super().check()
        options = self.options
        what = WHAT[options.what]
        for name in _PARAMETERS:
            given, option = getattr(options, name) is not None, opt.option(name)
            if name in what.needs and not given:
                raise InputError(f"--what {options.what} needs {option}: see --help")
            if given and name not in what.parameters:
                fits = ", ".join(n for n, other in WHAT.items() if name in other.parameters)
                raise InputError(f"{option} is not for --what {options.what}, but for {fits}")
        options.relation = options.relation or what.relations[0]
        if options.relation not in what.relations:
            fits = f"must be {' or '.join(what.relations)}, got {options.relation}"
            raise InputError(f"--relation of --what {options.what} {fits}")
        options.asserted = bool(options.asserted)
        if options.asserted and options.max_degree is None:
            raise InputError("--asserted is your word on the degrees: give the bound, --max-degree")
        if options.relation == "node" and not options.asserted:
            needed = "--max-degree and --asserted, your word on a bound on the degrees"
            raise InputError(f"--relation node needs {needed}: give both, or leave it out")
        first, second = options.edge
        if first == second:
            raise InputError(f"--edge must name two columns, got {first!r} twice")
        if "" in (first, second, options.weight):
            raise InputError("--edge and --weight must name columns, got an empty name")
        fewer = "a smaller --max-degree" if options.what == "degrees" else "fewer vertices"
        self.what, self.remedies = what, {"labels": f"give {fewer}"}

    def source(self) -> formats.Source:
        options = self.options
        columns = [*options.edge, *filter(None, [options.weight])]
        return self.read(columns, numbered_edge if options.vertices is not None else named_edge)

    def transform(self, places: formats.Places) -> Any:
        options, what = self.options, self.what
        self.vertices = self._vertices(places)
        check_whole("horizon", options.horizon)
        if options.every is None:
            options.every = max(1, options.horizon // _RELEASES) if options.what == "cuts" else 1
        given = {name: getattr(options, name) for name in what.parameters if name != "weight"}
        made = getattr(dp, what.transform)(
            self.given,
            options.horizon,
            self.vertices,
            **{name: value for name, value in given.items() if value is not None},
            relation=options.relation,
            every=options.every,
            **self.shared(places),
        )
        self.labels: tuple[str, ...] | None = made.labels
        self.columns = formats.RELEASES if self.labels is None else formats.vectors(self.labels)
        return made

    def _vertices(self, places: formats.Places) -> int | list[str]:
        """The public vertices; an InputError where they are too few, or too many for cuts."""
        options, given = self.options, "--vertices"
        vertices: int | list[str] | None = options.vertices
        if vertices is None:
            given, vertices = "--vertices-file", self.listed_texts("vertices", places.paths)
        self.n = vertices if isinstance(vertices, int) else len(vertices)
        if self.n < 2:
            raise InputError(f"{given}: a graph has 2 vertices or more, got {self.n}")
        if options.what == "cuts" and self.n > _MOST_CUT:
            raise InputError(
                f"{given}: --what cuts has a column for each pair of vertices, and takes up to "
                f"{_MOST_CUT} of them, got {self.n:,}"
            )
        return vertices

    def table(self) -> formats.Table:
        return self.columns

    def listed(self) -> Listed | None:
        if not isinstance(self.vertices, list):
            return None
        return Listed("--vertices-file", self.vertices, _ends)

    def _noun(self) -> str:
        return {
            "kstars": f"stars of {self.options.k} rays",
            "highdegree": f"vertices of {self.options.threshold} neighbours or more",
        }.get(self.options.what, self.what.noun)

    def notes(self) -> list[str]:
        options = self.options
        vertices = "the vertices" if options.vertices is None else f"0 .. {options.vertices - 1}"
        first, second = options.edge
        if options.what == "cuts":
            pair = f"the pair of its {first} and {second}"
            adds = f"adds {options.weight or '1'} to the weight of {pair}"
            limits = "outside [-1, 1]"
        else:
            adds = f"inserts the edge of its {first} and {second}"
            limits = "no whole number from 1 to --max-weight"
        also = "" if options.what == "cuts" else "; a pair that came before counts nothing"
        lines = [f"note: a row {adds}, where both are of {vertices}{also}"]
        if options.weight is not None:
            lines.append(f"note: a row whose {options.weight} is {limits} counts nothing")
        if options.vertices is None:
            lines.append(unchecked("the vertices are", "their"))
        if options.max_degree is not None and not options.asserted:
            capped = f"the first {options.max_degree:,}"
            if options.what == "kstars":
                lines.append(f"note: of a vertex's neighbours {capped} count (--max-degree)")
            elif options.what != "degrees":
                lines.append(
                    f"note: of each vertex {capped} pairs count (--max-degree), and an edge only "
                    "if it is among those of both its ends"
                )
        if options.every > 1:
            lines.append(f"note: {how_often(options)}")
        return lines

    def estimate(self) -> Estimate:
        options, noun = self.options, self._noun()
        what = noun if options.what == "forest" else f"number of {noun}"
        title, left_out = [], ["rows that name another vertex"]
        degree = "" if options.max_degree is None else f"{options.max_degree:,}"
        if options.what == "kstars":
            title.append(f"of a vertex's first {degree} neighbours")
            left_out.append(f"neighbours of a vertex beyond its first {degree} (--max-degree)")
        elif degree and options.what != "degrees" and not options.asserted:
            title.append(f"capped at {degree} pairs a vertex")
            left_out.append(f"edges beyond the first {degree} pairs of a vertex (--max-degree)")
        if options.weight is not None and options.what == "forest":
            title.append(f"of weights from 1 to {options.max_weight:,}")
            left_out.append(f"rows of other weights than 1 to {options.max_weight:,}")
            left_out.append("a pair's weights after its first")
        elif options.weight is not None:
            title.append(f"of weights from -1 to 1 rounded to multiples of {options.unit or 1:g}")
            left_out.append("rows of weights beyond -1 or 1")
            left_out.append("what of a weight is rounded off")
        of_all = f"the {what} of the graph on the given vertices"
        if options.what == "cuts":
            of_all = "the weight of a pair of the given vertices"
        estimate = Estimate(of_all, ", ".join(title), left_out)
        return replace(estimate, what=f"{of_all}{estimate.in_title}")

    def public(self) -> str:
        if not self.options.asserted:
            return super().public()
        neighbours = many(self.options.max_degree, "neighbour")
        word = f"It rests on your word that no vertex has more than {neighbours} (--asserted)."
        return f"{super().public()} {word}"

    def scope(self) -> str:
        return {
            "edge": "one pair of vertices, not for all pairs of a person",
            "node": "one vertex with all its pairs",
        }.get(self.options.relation, super().scope())

    def unit(self) -> str:
        unit = {
            "edge": "one pair of vertices with all its rows",
            "node": "one vertex with all its pairs",
        }.get(self.options.relation)
        if unit is None:
            return super().unit()
        unit += " (not that rows are there)"
        if not self.options.asserted:
            return unit
        neighbours = many(self.options.max_degree, "neighbour")
        return f"{unit}, if no vertex has more than {neighbours} (--asserted)"

    def written(self) -> str:
        return f"private graph statistics ({self._noun()}): {self.where}"

    def remarks(self) -> list[str]:
        return cuts(self.counter, self.n) if self.options.what == "cuts" else []

    def picture(self) -> Picture:
        options, noun, estimate = self.options, self._noun(), self.estimate()
        of = "" if options.what in ("forest", "cuts") else "number of "
        by = f" by {options.key}" * bool(options.key)
        title = f"Private {of}{noun}{estimate.in_title}{by}"
        if self.labels is None:
            forest = "a minimum forest's weights" if options.what == "forest" else None
            return self.running(title, sum_of=forest)
        last = self.output.last
        shown, choice = plot_keys.of_most_rows(options, last, _KEYS)
        panels = [Panel(name, note, row[:-1], row[-1]) for name, note, (row,) in shown]
        drawn: Any = {"title": title, "choice": choice, "keys": last.keys(), "panels": panels}
        drawn["remark"] = estimate.remark
        if options.what == "degrees":
            return Degrees(**drawn, covers=estimate.bars, domain=self.labels)
        names = self.vertices if isinstance(self.vertices, list) else list(map(str, range(self.n)))
        covers = (
            "Lines on the scale: 1.96 standard deviations of the noise of each weight; what is "
            "between them may be noise alone."
        )
        return Weights(**drawn, covers=covers, vertices=names)


def numbered_edge(u: object, v: object, *weight: object) -> object:
    """An edge of vertices that are whole numbers, with its weight if there is one.

    What is not a vertex stays as it is, for the transform to refuse.
    """
    return (whole(u), whole(v), *(whole(number(cell)) for cell in weight))


def named_edge(u: object, v: object, *weight: object) -> object:
    """The same for vertices that are texts."""
    return (text(u), text(v), *(whole(number(cell)) for cell in weight))


def cuts(counter: Counter, n: int) -> list[str]:
    """The errors of cuts to expect."""
    half, rest = n // 2, n - n // 2
    stddev = stddev_of_cut(counter.max_variance() ** 0.5, half, rest)
    bound = cut_error_bound(counter, half, rest, beta=0.05)
    return [
        "cuts: add up the weights between the two sides (beam_dpcount.statistics.cut_values does); "
        f"of a given cut of the {n} vertices into {half} and {rest} the standard deviation is at "
        f"most {stddev:.3g}; all such cuts of all releases are within {bound:.3g} of those by the "
        "weights as counted with probability 95 %."
    ]


def _ends(_: str, event: Any) -> list[str]:
    return texts_of(event.value[:2])


main = command(Graph)
