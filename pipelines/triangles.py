"""How many triangles a graph has while it grows, edge by edge: from lines timestamp,a,b.

    python -m pipelines.triangles --input edges.csv --output triangles.csv --vertices 100

Vertices are whole numbers from 0. Per element: the number of lines, their order and their times are
public; protected is any one pair, a and b, in all lines that name it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.transforms.window import TimestampedValue

import beam_dpcount as dp
from pipelines import files

GRAPH = "all"  # the key: a graph for each key would be counted by itself

Edge = tuple[str, tuple[int, int] | None]


def seconds_of(cell: str) -> float | None:
    """The Unix time of an ISO timestamp, in UTC if it names no zone; None if it cannot be read."""
    try:
        time = dt.datetime.fromisoformat(cell.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)).timestamp()


def edges_of(line: bytes) -> Iterator[TimestampedValue[Edge]]:
    """The edge of a line, at its time; None where the line holds no edge.

    It must not be left out: the number of elements is public, so every line takes its step. A line
    without a time is left out, as times are public.
    """
    time, *pair = [*files.cells_of(line), "", "", ""][:3]
    seconds = seconds_of(time)
    if seconds is not None:
        numbers = [int(cell) for cell in pair if cell.isdecimal() and len(cell) < 10]
        edge = (numbers[0], numbers[1]) if len(numbers) == 2 else None
        yield TimestampedValue((GRAPH, edge), seconds)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the pipeline."""
    parser = files.parser("triangles", __doc__)
    add = parser.add_argument
    add("--vertices", type=int, default=100, help="how many; public; default: %(default)s")
    add("--max-degree", type=int, default=20, help="more edges of a vertex do not count")
    add("--horizon", type=int, default=10_000, help="the most lines; default: %(default)s")
    add("--every", type=int, default=100, help="lines from release to release")
    options, flags = parser.parse_known_args(argv)
    count = dp.TriangleCount(
        dp.ApproxDP(options.epsilon, options.delta),
        options.horizon,
        options.vertices,
        max_degree=options.max_degree,
        every=options.every,
    )
    stddev = count.counter.variance(options.horizon) ** 0.5
    print(f"standard deviation of the noise after {options.horizon} lines: {stddev:.1f}")
    with beam.Pipeline(options=files.beam_options(flags)) as pipeline:
        edges = (
            pipeline | files.lines(options.input) | beam.FlatMap(edges_of).with_output_types(Edge)
        )
        files.write(edges | count, options.output)


if __name__ == "__main__":
    main()
