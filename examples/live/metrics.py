"""The last tick, for Prometheus, and by it for Grafana: `/metrics`.

What goes there is what the page shows. The client's usual figures of the process (CPU time, memory)
are left out: they follow the load, which is private.
"""

from __future__ import annotations

import math
from typing import Any

from examples.live.publish import Publisher


class MissingError(Exception):
    """The client library is not installed."""


def exporter(publisher: Publisher) -> Any:
    """A function that gives `/metrics`: a body and its type.

    Raises:
      MissingError: prometheus_client is not installed.
    """
    try:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
        from prometheus_client.core import GaugeMetricFamily
    except ImportError as error:
        raise MissingError("pip install 'beam-dpcount[live]'") from error

    class Ticks:
        """Reads the last tick when it is asked."""

        def collect(self) -> Any:
            published = publisher.after(0, 0)
            if not published:
                return
            tick = published[-1]
            number = GaugeMetricFamily("dp_tick", "The last tick that was released")
            number.add_metric([], tick["step"])
            end = GaugeMetricFamily("dp_tick_end_seconds", "When it ended, since 1970")
            end.add_metric([], tick["end"] / 1e6)
            yield from (number, end)
            for column, what in (
                ("values", "A private value, of all since the start; NaN: too small to say"),
                ("lows", "Where its confidence interval begins"),
                ("highs", "Where it ends"),
            ):
                name = f"dp_release_{column[:-1]}"
                gauge = GaugeMetricFamily(name, what, labels=["key", "metric"])
                for key, row in zip(tick["keys"], tick[column], strict=True):
                    for metric, value in zip(tick["names"], row, strict=True):
                        gauge.add_metric([key, metric], math.nan if value is None else value)
                yield gauge

    registry = CollectorRegistry()
    registry.register(Ticks())

    def metrics() -> tuple[bytes, str]:
        return generate_latest(registry), CONTENT_TYPE_LATEST

    return metrics
