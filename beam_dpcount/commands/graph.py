"""Private running statistics of graphs that grow edge by edge, out of an event log.

Reads CSV or Parquet; a row inserts the edge of the two vertices in its columns into the graph of
its key, without --key into the one graph, "all". Writes after every row, or every so many, a
private statistic of each key's graph: key, step, timestamp, value, stddev; or in place of value a
column for each degree (--what degrees) or pair of vertices (--what cuts).
Graphs are undirected, and a pair that came before inserts nothing; for --what cuts rows add up.
Rows of a key are taken in the order of their timestamps (ties: by file and row), or without
--timestamp in the order of the files.
The keys, the vertices and the number, order and times of the rows are public; which edges they
insert is protected. A row that is no edge of the vertices (an unknown vertex, twice the same one, a
weight out of range) inserts nothing, but is a step all the same. A null of Parquet is no vertex,
and as a key stops the command. Options that are not listed here go to Beam, e.g. --runner.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, cast

import apache_beam as beam
from apache_beam.io.fileio import ReadableFile

import beam_dpcount as dp
from beam_dpcount.checks import check_whole
from beam_dpcount.commands import app as cli
from beam_dpcount.commands import estimates
from beam_dpcount.commands.count import (
    Places,
    add_horizon_argument,
    checked_places,
    one_run,
    past_horizon,
    run,
    unchecked,
)
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.files import times as timestamps
from beam_dpcount.commands.files.read import (
    Event,
    InputError,
    Reader,
    ReadFiles,
    WriteReleases,
    read_releases,
)
from beam_dpcount.commands.histogram import ALL, WriteHistograms, last_histograms
from beam_dpcount.commands.ticks import add_output_arguments, add_path_argument, public_list
from beam_dpcount.counters.counter import Counter
from beam_dpcount.statistics.cut_values import cut_error_bound, stddev_of_cut
from beam_dpcount.transforms.statistics import StatisticCount

_RELEASES = 100  # of --what cuts by default, up to the horizon
_KEYS = 6  # drawn
_MOST_CUT = 500  # vertices of --what cuts: each pair is a column
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)


class What(NamedTuple):
    """A statistic that --what names.

    Fields:
      noun: what is counted.
      transform: its transform.
      needs, takes: parameters that it must and may have, by the names of the transform; but
        `weight` is the column.
      relations: what may be protected, the default first.
    """

    noun: str
    transform: Any
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ("max_degree", "asserted")
    relations: tuple[str, ...] = ("edge", "node")


WHAT = {
    "edges": What("edges", dp.EdgeCount),
    "triangles": What("triangles", dp.TriangleCount, ("max_degree",)),
    "kstars": What("k-stars", dp.KStarCount, ("max_degree", "k")),
    "highdegree": What("vertices of high degree", dp.HighDegreeCount, ("threshold",)),
    "degrees": What("vertices by degree", dp.DegreeHistogram, ("max_degree",)),
    "forest": What(
        "cost of a minimum spanning forest",
        dp.SpanningForestCost,
        ("max_weight",),
        ("max_degree", "asserted", "weight"),
    ),
    "cuts": What(
        "weights of pairs", dp.CutGraph, (), ("unit", "weight"), ("add_remove", "replace_one")
    ),
}
_PARAMETERS = ("max_degree", "asserted", "k", "threshold", "max_weight", "unit", "weight")


def arguments() -> cli.Parser:
    """The options of the command."""
    parser = cli.command("pipelines.graph", __doc__)
    source = parser.add_argument_group("input")
    cli.add_source_arguments(source)
    source.add_argument(
        "--key", metavar="COLUMN", help="the (public) keys, a graph each; default: one graph"
    )
    source.add_argument(
        "--edge", nargs=2, required=True, metavar="COLUMN", help="the two vertices of each row"
    )
    source.add_argument(
        "--weight",
        metavar="COLUMN",
        help="with --what forest (whole numbers from 1) or cuts (from -1 to 1); default: 1",
    )
    vertices = source.add_mutually_exclusive_group(required=True)
    vertices.add_argument(
        "--vertices",
        type=cli.whole,
        metavar="N",
        help="the (public) vertices are the whole numbers from 0 to N-1",
    )
    vertices.add_argument(
        "--vertices-file",
        metavar="FILE",
        help="the vertices are the texts of this file, one per line; blank lines are skipped",
    )
    cli.add_time_arguments(source)

    cli.add_budget_arguments(parser)
    count = parser.add_argument_group("counting")
    count.add_argument(
        "--what",
        choices=tuple(WHAT),
        required=True,
        help="edges; triangles; kstars: stars of -k rays; highdegree: vertices of --threshold "
        "neighbours or more; degrees: how many vertices have 1, 2, .. --max-degree neighbours; "
        "forest: cost of a minimum spanning forest; cuts: the weight of every pair of vertices, "
        "from which the value of every cut follows",
    )
    count.add_argument(
        "--max-degree",
        type=cli.whole,
        metavar="D",
        help="edges, triangles, highdegree, forest: of each vertex only the first D pairs count "
        "that rows name, and an edge that is not among those of both its ends is left out; "
        "kstars: D rays of a vertex count; degrees: the last column holds those of D or more. "
        "Needed for triangles, kstars and degrees",
    )
    count.add_argument(
        "--asserted",
        action="store_true",
        default=None,
        help="your word that no vertex has more than --max-degree neighbours, for less noise and "
        "for --relation node; nothing enforces it, and the guarantee rests on it",
    )
    count.add_argument(
        "-k", "--k", type=cli.whole, metavar="K", help="kstars: the rays, from 1 to --max-degree"
    )
    count.add_argument(
        "--threshold", type=cli.whole, metavar="N", help="highdegree: the least neighbours"
    )
    count.add_argument(
        "--max-weight", type=cli.whole, metavar="W", help="forest: the largest weight of an edge"
    )
    count.add_argument(
        "--unit",
        type=cli.positive("--unit 0.01"),
        metavar="U",
        help="cuts: weights are rounded to multiples of it; it divides 1 (default 1)",
    )
    count.add_argument(
        "--relation",
        choices=("edge", "node", "add_remove", "replace_one"),
        help="what is protected: edge (default), all rows of any one pair of vertices; node, all "
        "rows of any one vertex (needs --asserted). For cuts: add_remove (default), that any one "
        "row counts or not; replace_one, that it has any other edge and weight, for twice the "
        "noise",
    )
    add_horizon_argument(count)
    count.add_argument(
        "--every",
        type=cli.whole,
        metavar="M",
        help="a release after every M rows of a key; the budget is for all releases, and the noise "
        f"does not depend on M. Default: 1; for cuts, whose releases are large, T/{_RELEASES}, or "
        "1",
    )
    cli.add_mechanism_argument(count)
    cli.add_entropy_arguments(parser)
    add_path_argument(count)
    add_output_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command.

    Raises:
      ValueError, TypeError, OSError: what the user can mend, in one line each.
    """
    parser = arguments()
    options, flags = parser.parse_known_args(argv)
    cli.budget_of(options)
    check_parameters(options)
    events = ReadEdges(
        options.input,
        options.key,
        [*options.edge, *filter(None, [options.weight])],
        options.timestamp,
        options.timestamp_format,
        options.timezone,
        options.delimiter,
        options.show_header,
    )
    events.check()
    places = checked_places(options)
    vertices = vertices_of(options)
    counts = counting(options, vertices, places)
    timed = options.timestamp is not None
    written: Any = WriteReleases(options.output, with_timestamps=timed)
    if counts.domain is not None:
        written = WriteHistograms(options.output, counts.domain, timed)
    pipeline = beam.Pipeline(options=cli.beam_options(flags, parser.names()))
    releases = pipeline | "Read" >> events | "Count" >> counts
    counter = cast(Counter, counts.counter)  # of the path now chosen
    made = dp.Release if counts.domain is None else dp.VectorRelease
    _ = (
        releases
        | "Progress" >> beam.ParDo(cli.CountReleases()).with_output_types(made)
        | "Write" >> written
    )
    cli.announce(options, notes(options))
    result, missing = run(pipeline, options), []
    if options.plot:
        missing = draw(options, counter, counts.domain, vertices)
    print("\n".join([report(options, counter, vertices, result), *missing]))


# What is asked for


def check_parameters(options: argparse.Namespace) -> None:
    """That --what has the parameters that it needs, and no others; puts the defaults there.

    Raises:
      InputError: it has not.
    """
    what = WHAT[options.what]
    for name in _PARAMETERS:
        given = getattr(options, name) is not None
        if name in what.needs and not given:
            raise InputError(f"--what {options.what} needs {cli.option(name)}: see --help")
        if given and name not in (*what.needs, *what.takes):
            fits = [n for n, other in WHAT.items() if name in (*other.needs, *other.takes)]
            raise InputError(
                f"{cli.option(name)} is not for --what {options.what}, but for {', '.join(fits)}"
            )
    options.relation = options.relation or what.relations[0]
    if options.relation not in what.relations:
        raise InputError(
            f"--relation of --what {options.what} must be {' or '.join(what.relations)}, got "
            f"{options.relation}"
        )
    options.asserted = bool(options.asserted)
    if options.asserted and options.max_degree is None:
        raise InputError("--asserted is your word on the degrees: give the bound, --max-degree")
    if options.relation == "node" and not options.asserted:
        raise InputError(
            "--relation node holds only where you know a bound on the degrees: give --max-degree "
            "and --asserted, or leave it out"
        )
    first, second = options.edge
    if first == second:
        raise InputError(f"--edge must name two columns, got {first!r} twice")


def vertices_of(options: argparse.Namespace) -> int | list[str]:
    """The public vertices.

    Raises:
      InputError: they are too few, or for cuts too many; or the file cannot be used.
    """
    vertices = options.vertices
    if vertices is None:
        vertices = public_list("--vertices", None, options.vertices_file, options)
    number = _number_of(vertices)
    if number < 2:
        raise InputError(f"{_given(options)}: a graph has 2 vertices or more, got {number}")
    if options.what == "cuts" and number > _MOST_CUT:
        raise InputError(
            f"{_given(options)}: --what cuts has a column for each pair of vertices, and takes up "
            f"to {_MOST_CUT} of them, got {number:,}"
        )
    return cast("int | list[str]", vertices)


def _given(options: argparse.Namespace) -> str:
    return "--vertices" if options.vertices_file is None else "--vertices-file"


def _number_of(vertices: int | list[str]) -> int:
    return vertices if isinstance(vertices, int) else len(vertices)


def counting(
    options: argparse.Namespace, vertices: int | list[str], places: Places
) -> StatisticCount:
    """The transform that the options ask for; it also puts the default of --every there.

    Raises:
      ValueError, TypeError: they make no sense together.
    """
    what = WHAT[options.what]
    fewer = "a smaller --max-degree" if options.what == "degrees" else "fewer vertices"
    with cli.named_as_options(options, {"domain": f"give {fewer}"}):
        check_whole("horizon", options.horizon)
        if options.every is None:
            cuts = options.what == "cuts"
            options.every = max(1, options.horizon // _RELEASES) if cuts else 1
        named = [name for name in (*what.needs, *what.takes) if name != "weight"]
        given = {name: getattr(options, name) for name in named}
        return cast(
            StatisticCount,
            what.transform(
                cli.budget_of(options),
                options.horizon,
                vertices,
                **{name: value for name, value in given.items() if value is not None},
                relation=options.relation,
                mechanism=options.mechanism,
                every=options.every,
                value=EdgeOf(isinstance(vertices, int)),
                element_id=places,
                path=options.path,
                entropy=cli.entropy_of(options),
            ),
        )


class EdgeOf:
    """The edge of a row: its vertices, and its weight if there is a column of weights.

    What is no vertex stays what it is, for the transform to refuse.

    Args:
      numbered: the vertices are whole numbers; else texts, what is no text as str() shows it.
    """

    def __init__(self, numbered: bool) -> None:
        self._numbered = numbered

    def __call__(self, event: Event) -> object:
        u, v, *weight = cast("tuple[object, ...]", event.value)
        if self._numbered:
            return (_number(u, whole=True), _number(v, whole=True), *map(_number, weight))
        return (_text(u), _text(v), *map(_number, weight))


def _number(cell: object, whole: bool = False) -> object:
    """The number that a cell shows, an int if it is whole; everything else as it is."""
    number = cell
    if isinstance(cell, str):
        if _DIGITS.fullmatch(cell):
            return int(cell)
        if whole or "_" in cell:
            return cell
        try:
            number = float(cell)
        except ValueError:
            return cell
    # Integers become floats in Parquet where a column has nulls.
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _text(cell: object) -> object:
    return cell if cell is None or isinstance(cell, str) else str(cell)


# Reading


@dataclass(frozen=True)
class _EdgeReader(Reader):
    """Reads several columns as the value of a row: a tuple of their cells.

    Args:
      more: the columns after the first, which is `value`.
      keyed: False: every row has the key `ALL`, and the column that is called its key is the value.
    """

    more: tuple[str, ...] = ()
    keyed: bool = True

    remedy: ClassVar[str] = ""

    @property
    def counted(self) -> tuple[str, ...]:
        return (cast(str, self.value), *self.more)

    @property
    def public(self) -> frozenset[str]:
        return frozenset(filter(None, [self.key if self.keyed else None, self.timestamp]))

    def measure(self, cell: object) -> object:
        return cell

    def csv_rows(self, readable: ReadableFile) -> Iterator[tuple[int, object, object, object]]:
        return self._joined([super(_EdgeReader, p).csv_rows(readable) for p in self._parts()])

    def parquet_rows(self, readable: ReadableFile) -> Iterator[tuple[int, object, object, object]]:
        return self._joined([super(_EdgeReader, p).parquet_rows(readable) for p in self._parts()])

    def _parts(self) -> list[_EdgeReader]:
        # Each reads the file by itself. That is cheap beside the rest, and one way to read files.
        return [replace(self, value=column) for column in (cast(str, self.value), *self.more)]

    def _joined(
        self, parts: list[Iterator[tuple[int, object, object, object]]]
    ) -> Iterator[tuple[int, object, object, object]]:
        for rows in zip(*parts, strict=True):
            row, key, _, time = rows[0]
            yield row, key if self.keyed else ALL, tuple(cells[2] for cells in rows), time


class ReadEdges(ReadFiles):
    """`ReadEvents` whose values are tuples of cells.

    Args:
      inputs, timestamp, timestamp_format, timezone, delimiter, show_header: as there.
      key: the column of the keys; None: every row has the key "all".
      columns: of the cells. They are protected, and so neither that of the keys nor that of times.
    """

    def __init__(
        self,
        inputs: str | list[str],
        key: str | None,
        columns: Sequence[str],
        timestamp: str | None = None,
        timestamp_format: str = "unix",
        timezone: str = "UTC",
        delimiter: str = ",",
        show_header: bool = False,
    ) -> None:
        if "" in columns:
            raise InputError("--edge and --weight must name columns, got an empty name")
        first, *more = columns
        how = timestamp, timestamp_format, timezone, delimiter, show_header
        column, keyed = (first, False) if key is None else (key, True)
        reader = _EdgeReader.of(column, first, None, *how, more=tuple(more), keyed=keyed)
        super().__init__(inputs, reader)


# The report


def _noun(options: argparse.Namespace) -> str:
    return {
        "kstars": f"stars of {options.k} rays",
        "highdegree": f"vertices of {options.threshold} neighbours or more",
    }.get(options.what, WHAT[options.what].noun)


def notes(options: argparse.Namespace) -> list[str]:
    """What a row counts."""
    vertices = "the vertices" if options.vertices is None else f"0 .. {options.vertices - 1}"
    first, second = options.edge
    if options.what == "cuts":
        adds = f"adds {options.weight or '1'} to the weight of the pair of its {first} and {second}"
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
        degree = f"{options.max_degree:,}"
        if options.what == "kstars":
            lines.append(f"note: of a vertex's neighbours the first {degree} count (--max-degree)")
        elif options.what != "degrees":
            lines.append(
                f"note: of each vertex the first {degree} pairs count (--max-degree), and an edge "
                "only if it is among those of both its ends"
            )
    if options.every > 1:
        lines.append(
            f"note: a release after every {options.every:,} rows of a key (--every), up to "
            f"{options.horizon // options.every:,}; rows after the last of them have none"
        )
    return lines


def draw(
    options: argparse.Namespace,
    counter: Counter,
    domain: tuple[str, ...] | None,
    vertices: int | list[str],
) -> list[str]:
    """Draw the releases, or the last ones of vectors, to the file that the options name.

    Returns:
      Warnings about keys that could not be drawn.
    """
    from beam_dpcount.commands.figures import graph as plots_graph
    from beam_dpcount.commands.figures import (
        series as plots,  # here, because matplotlib is an extra
    )

    estimate = estimates.of_graph(options, _noun(options))
    title = f"Private {'' if options.what in ('forest', 'cuts') else 'number of '}{_noun(options)}"
    title += estimate.in_title + f" by {options.key}" * bool(options.key)
    if domain is None:
        releases = read_releases(options.output)
        plots.prefix_counts(
            releases,
            options.plot,
            title=title,
            guarantee=f"{guarantee(options, counter)} {estimate.band}",
            only=options.plot_keys,
            time_axis=options.timestamp is not None,
            zone=timestamps.zone_of(options.timezone),
            sum_of="a minimum forest's weights" if options.what == "forest" else None,
        )
        return plot_keys.missing(options, set(releases["key"]))
    last = last_histograms(options.output)
    shown, choice = plot_keys.of_most_rows(options, last, _KEYS)
    panels = []
    for key, release in shown.items():
        rows = f"after {cli.many(release.step, 'row')}"
        name = (rows, "") if options.key is None else (key, rows)
        panels.append(plots_graph.Panel(*name, release.values, release.stddev))
    remarks = [guarantee(options, counter), *choice]
    if options.what == "degrees":
        remarks.append(estimate.bars)
        plots_graph.degrees(domain, panels, options.plot, title=title, guarantee=" ".join(remarks))
        return plot_keys.missing(options, last)
    names = list(map(str, range(vertices))) if isinstance(vertices, int) else vertices
    remarks.append(
        "Lines on the scale: 1.96 standard deviations of the noise of each weight; what is between "
        f"them may be noise alone. {estimate.remark}"
    )
    plots_graph.weights(names, panels, options.plot, title=title, guarantee=" ".join(remarks))
    return plot_keys.missing(options, last)


def guarantee(options: argparse.Namespace, counter: Counter) -> str:
    """The guarantee in one sentence, and what it is not for, or rests on, in others."""
    of, public = ("of a key ", "the keys, ") if options.key else ("", "")
    scope = {
        "edge": "one pair of vertices, not for all pairs of a person",
        "node": "one vertex with all its pairs",
    }.get(options.relation, "one row, not for all rows of a person")
    word = (
        " It rests on your word that no vertex has more than "
        f"{cli.many(options.max_degree, 'neighbour')} (--asserted)."
        if options.asserted
        else ""
    )
    return (
        f"Guarantee: all releases {of}together satisfy {counter.budget} for neighbours under "
        f"{counter.change}; public: {public}the vertices, and the number, order and times of the "
        f"rows.{word} It is for {scope}, and {one_run(options)}"
    )


def report(
    options: argparse.Namespace, counter: Counter, vertices: int | list[str], result: Any
) -> str:
    """What the user reads at the end: where the output is, the guarantee, the errors to expect."""
    horizon, streams = counter.mechanism.horizon, counter.dimension or 1
    of = "all" if options.key is None else "a key's"
    largest = f"the largest of {of} {cli.many(streams * horizon, 'count')}"
    lines = [
        f"private graph statistics ({_noun(options)}): {options.output}",
        *([f"picture: {options.plot}"] if options.plot else []),
        guarantee(options, counter),
        estimates.errors(counter, estimates.of_graph(options, _noun(options)), largest, streams),
        *(cuts(counter, _number_of(vertices)) if options.what == "cuts" else []),
        *past_horizon(horizon, result),
    ]
    return "\n".join(lines)


def cuts(counter: Counter, n: int) -> list[str]:
    """The errors of cuts to expect, in a list."""
    half, rest = n // 2, n - n // 2
    stddev = stddev_of_cut(counter.max_variance() ** 0.5, half, rest)
    bound = cut_error_bound(counter, half, rest, beta=0.05)
    return [
        "cuts: add up the weights between the two sides (beam_dpcount.statistics.cut_values does); "
        "of a given "
        f"cut of the {n} vertices into {half} and {rest} the "
        f"standard deviation is at most {stddev:.3g}; all such cuts of all releases are within "
        f"{bound:.3g} of those by the weights as counted with probability 95 %."
    ]
