"""How many views each page has had, tick by tick, on a source that does not end by itself.

    python -m pipelines.unbounded --input out/demo/events.csv --output out/live.csv --seconds 20

The stand-in for a source of your own takes a line of the file ten times a second. Protected are all
views of any one session. On a cluster give a secret, so that work that is done again after a
failure draws the same noise (docs/guide/retries.md).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse

import beam_dpcount as dp
from pipelines import files

PAGES = ["/home", "/search", "/products", "/cart", "/checkout", "/deals"]


class NextLine(beam.DoFn):
    """The stand-in: a line of the file for each impulse, at the time of the impulse."""

    def __init__(self, path: str) -> None:
        self._path = path

    def setup(self) -> None:
        with open(self._path, "rb") as file:
            self._lines = itertools.cycle(file.read().splitlines()[1:])

    def process(self, impulse: object) -> Iterator[bytes]:
        yield next(self._lines)


class Append(beam.DoFn):
    """The stand-in for a sink: a line for each release, as soon as it comes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, release: dp.Release) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(files.as_csv(release) + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the pipeline."""
    parser = files.parser("unbounded", __doc__)
    parser.add_argument("--seconds", type=int, default=20, help="until it ends; %(default)s")
    parser.add_argument("--tick", type=int, default=5, help="seconds; default: %(default)s")
    parser.add_argument("--start", type=int, help="Unix time; default: now. In earnest it is fixed")
    parser.add_argument("--secret-env", help="the environment variable that holds a secret")
    options, flags = parser.parse_known_args(argv)
    start = options.start or int(time.time())
    entropy = None  # the operating system's: noise is new whenever work is done again
    if options.secret_env:
        entropy = dp.ReplayableEntropy(options.secret_env, run_id=f"unbounded from {start}")
    count = dp.TickCount(
        dp.ApproxDP(options.epsilon, options.delta),
        # Its end is the last tick: the budget is for so many.
        dp.Clock(options.tick, start=start, stop=start + options.seconds),
        keys=PAGES,
        key="page",
        users=dp.Users("session", 3, per_key=1),
        entropy=entropy,
    )
    chosen = files.beam_options(flags)
    chosen.view_as(StandardOptions).streaming = True
    with beam.Pipeline(options=chosen) as pipeline:
        views = (
            pipeline
            # Your own source goes here: beam.io.ReadFromPubSub(topic=...), ReadFromKafka(...). Its
            # watermark ends the ticks; an event's time must be its own, not that of its arrival.
            | PeriodicImpulse(start, start + options.seconds, 0.1)
            | "Next line" >> beam.ParDo(NextLine(options.input))
            | beam.FlatMap(files.events_of)
        )
        # Your own sink goes here. Key and step are a release's primary key: after a failure it may
        # come again. Releases of a tick come in no order that means anything: sort by key and step.
        _ = views | count | "Append" >> beam.ParDo(Append(options.output))


if __name__ == "__main__":
    main()
