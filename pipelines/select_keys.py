"""How many views each page had so far, hour by hour, where nobody knows the pages beforehand.

    python -m pipelines.select_keys --input out/demo/events.csv --output out/views.csv

A page is shown from the first hour on at which its own private count is high enough. Protected are
all views of any one session, and so is which pages there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import apache_beam as beam

import beam_dpcount as dp
from pipelines import files


def main(argv: Sequence[str] | None = None) -> None:
    """Run the pipeline."""
    parser = files.parser("select_keys", __doc__)
    parser.add_argument(
        "--start", default="2026-01-15T00:00:00Z", help="of the day; default: %(default)s"
    )
    options, flags = parser.parse_known_args(argv)
    count = dp.TickCount(
        dp.ApproxDP(options.epsilon, options.delta),
        dp.Clock("1h", start=options.start, ticks=24, zone="UTC"),
        keys=dp.SelectKeys(),  # half of delta pays for it; at_least=10 leaves rare keys out
        key="page",
        time="timestamp",
        users=dp.Users("session", 3, per_key=1),
    )
    print(count.selection)  # which private counts show a key, and how soon
    with beam.Pipeline(options=files.beam_options(flags)) as pipeline:
        views = pipeline | files.lines(options.input) | beam.FlatMap(files.events_of)
        files.write(views | count, options.output)


if __name__ == "__main__":
    main()
