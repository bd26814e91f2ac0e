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
    dp.Mean("bought", 0, 1, name="share_bought"),  # numbers are clipped to 0 .. 1
]


def fields_of(event: files.Event) -> dict[str, object]:
    """What the metrics read. A field that holds no number adds nothing to its own metric only."""
    return {"session": event.session, "bought": int(event.action == "purchase")}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the pipeline."""
    parser = files.parser("several_numbers", __doc__)
    parser.add_argument(
        "--start", default="2026-01-15T00:00:00Z", help="of the day; default: %(default)s"
    )
    options, flags = parser.parse_known_args(argv)
    numbers = dp.TickAggregate(
        dp.ApproxDP(options.epsilon, options.delta),
        tick=3600,
        start=files.seconds_of(options.start),
        horizon=24,
        keys=PAGES,
        metrics=METRICS,
        users=dp.Users(by=lambda fields: fields["session"], events=3, per_key=3),
    )
    # How far off each number would be, of 500 made-up sessions that look at a page once.
    print(numbers.expected([{"session": f"s{i}", "bought": i % 10 == 0} for i in range(500)]))
    with beam.Pipeline(options=files.beam_options(flags)) as pipeline:
        rows = (
            pipeline
            | files.lines(options.input)
            | beam.FlatMap(files.events_of)
            | beam.Map(lambda event: (event.page, fields_of(event)))
            | numbers
            # A release has intervals, too: lows and highs, and notes where a number is left out.
            | beam.Map(lambda one: (one.key, one.step, one.timestamp, *one.values))
        )
        files.write(rows, options.output, ["key", "step", "timestamp", *numbers.columns])


if __name__ == "__main__":
    main()
