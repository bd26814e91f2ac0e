"""How many views each page had so far, at the end of every hour of a day: from a CSV file.

    python -m pipelines.count_file --input out/demo/events.csv --output out/views.csv

Protected are all views of any one session: that they happened, when, and of which page. The pages
and the clock are public.
"""

from __future__ import annotations

from collections.abc import Sequence

import apache_beam as beam

import beam_dpcount as dp
from pipelines import files

# Public: it must not come from the log itself.
PAGES = ["/home", "/search", "/products", "/cart", "/checkout", "/deals"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the pipeline."""
    parser = files.parser("count_file", __doc__)
    parser.add_argument(
        "--start", default="2026-01-15T00:00:00Z", help="of the day; default: %(default)s"
    )
    options, flags = parser.parse_known_args(argv)
    count = dp.TickCount(
        dp.ApproxDP(options.epsilon, options.delta),
        # The zone is that of times without an offset.
        dp.Clock("1h", start=options.start, ticks=24, zone="UTC"),
        keys=PAGES,
        key="page",
        time="timestamp",
        # Of each session three events count, in all, and one of each page. Noise hides that many.
        users=dp.Users("session", 3, per_key=1),
    )
    # Public, so that you may look at it before anything is counted.
    print(f"standard deviation of the noise: at most {count.counter.max_variance() ** 0.5:.1f}")
    with beam.Pipeline(options=files.beam_options(flags)) as pipeline:
        views = pipeline | files.lines(options.input) | beam.FlatMap(files.events_of)
        # beam.Filter(lambda event: event.action == "purchase") may stand here: at a clock it is
        # hidden whether an event counts. Per element (pipelines/triangles.py) it is not.
        files.write(views | count, options.output)


if __name__ == "__main__":
    main()
