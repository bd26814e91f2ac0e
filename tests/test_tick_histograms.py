"""TickHistogram: items at the ticks of a clock, each event counted under few of them."""

from __future__ import annotations

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import TimestampedValue

import beam_dpcount as dp
from beam_dpcount.mechanisms import SmoothBinary
from beam_dpcount.transforms.tick_histograms import TickHistogram

EVENTS = [
    ("b", 5),
    (["a", "b"], 15),
    (["c", "a", "a", "b"], 15),  # three distinct items: the first two of the domain count
    ("unknown", 15),
    (7, 16),
    ("a", 999),  # after the last tick
]
LARGE = dp.ZCDP(1e12)
DOMAIN = ["a", "b", "c"]


def counted(path, **options):
    """Exact counts as (item, step, value), by noise too small to see."""
    transform = TickHistogram(
        LARGE,
        10,
        0,
        horizon=3,
        domain=["a", "b", "c"],
        mechanism=SmoothBinary,
        path=path,
        **options,
    )
    found = []
    with beam.Pipeline("FnApiRunner") as pipeline:
        events = pipeline | beam.Create(EVENTS) | beam.MapTuple(TimestampedValue)
        rows = events | transform | beam.Map(lambda r: (r.key, r.step, r.value))
        _ = rows | beam.Map(found.append)
        assert_that(rows, equal_to(expected(options.get("max_items", 1))))
    return transform


def expected(most):
    one = {"a": [0, 2, 2], "b": [1, 1, 1], "c": [0, 0, 0]}
    two = {"a": [0, 2, 2], "b": [1, 3, 3], "c": [0, 0, 0]}
    totals = one if most == 1 else two
    return [(key, i, float(x)) for key, row in totals.items() for i, x in enumerate(row, start=1)]


@pytest.mark.parametrize("path", ["bounded", "streaming"])
@pytest.mark.parametrize("most", [1, 2])
def test_items_are_counted_at_every_tick(path, most):
    counted(path, max_items=most)


def test_noise_is_for_as_many_items_as_an_event_may_count():
    def noise(most):
        made = TickHistogram(dp.ZCDP(0.5), 10, 0, horizon=8, domain=["a", "b", "c"], max_items=most)
        return made.counter.law.scale * made.counter.grid

    assert noise(2) == pytest.approx(2**0.5 * noise(1))


def test_what_makes_no_sense_is_refused():
    for options, message in (
        ({"domain": ["a"], "max_items": 2}, "max_items"),
        ({"domain": ["a"], "bounds": (0, 2)}, "unexpected keyword argument 'bounds'"),
        ({"domain": ["a"], "keys": ["a"]}, "unexpected keyword argument 'keys'"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            TickHistogram(LARGE, 10, 0, horizon=3, **options)


def test_a_share_is_spent_once():
    ledger = dp.Ledger(dp.ZCDP(0.5))
    made = TickHistogram(ledger.share(0.5, "items"), 10, 0, horizon=3, domain=["a", "b"])
    with beam.Pipeline("FnApiRunner") as pipeline:
        events = pipeline | beam.Create([("a", 5)]) | beam.MapTuple(TimestampedValue)
        _ = events | "Items" >> made
        with pytest.raises(ValueError, match="spent by"):
            _ = events | "Again" >> made
    assert ledger.shares[0].claimed_by
    assert made.display_data()["ledger"].startswith("items: 50 %")
