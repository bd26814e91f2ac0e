"""Several numbers of each page under one budget: its views, people, and share of purchases.

    python -m pipelines.several_numbers --input out/demo/events.csv --output out/numbers.csv

Hour by hour, of all events so far. Protected are all events of any one session.
"""

from __future__ import annotations

from collections.abc import Sequence

import apache_beam as beam

import beam_dpcount as dp
from pipelines import files

PAGES = ["/home", "/search", "/products", "/cart", "/checkout", "/deals"]
METRICS = [
    dp.Count(name="views"),
    dp.People(name="sessions"),
    dp.Rate("action = purchase", name="share_bought"),
]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the pipeline."""
    parser = files.parser("several_numbers", __doc__)
    parser.add_argument(
        "--start", default="2026-01-15T00:00:00Z", help="of the day; default: %(default)s"
    )
    options, flags = parser.parse_known_args(argv)
    numbers = dp.TickCount(
        dp.ApproxDP(options.epsilon, options.delta),
        dp.Clock("1h", start=options.start, ticks=24, zone="UTC"),
        METRICS,
        keys=PAGES,
        key="page",
        time="timestamp",
        users=dp.Users("session", 3),
    )
    # How far off each number would be, of 500 made-up sessions that look at a page once.
    actions = ["purchase", *["view"] * 9] * 50
    print(numbers.expected([{"session": f"s{i}", "action": a} for i, a in enumerate(actions)]))
    with beam.Pipeline(options=files.beam_options(flags)) as pipeline:
        events = pipeline | files.lines(options.input) | beam.FlatMap(files.events_of)
        # A release has intervals, too: lows and highs, and notes where a number is left out.
        columns = ["key", "step", "timestamp", *numbers.columns]
        files.write(events | numbers, options.output, columns)


if __name__ == "__main__":
    main()
