"""Shares of a ledger in transforms: used where one is applied, once, and shown in annotations."""

from __future__ import annotations

import pickle

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import SlidingWindows

import beam_dpcount as dp
from beam_dpcount.budget.shares import ClaimedError
from beam_dpcount.transforms.inputs import SEVERAL_WINDOWS
from tests.messages import says

EVENTS = [("a", 1), ("b", 0), ("a", 1)]
STEPS = [("a", 1), ("a", 2), ("b", 1)]


def test_two_transforms_spend_their_shares():
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6), "web shop")
    clicks = dp.PrefixCount(ledger.share(0.25, "clicks"), 100)
    others = dp.PrefixCount(ledger.rest("others"), 100)
    assert clicks.counter.budget == ledger.shares[0].budget
    assert [share.claimed_by for share in ledger.shares] == [None, None]
    with beam.Pipeline("FnApiRunner") as pipeline:
        events = pipeline | beam.Create(EVENTS)
        for label, counts in (("Clicks", clicks), ("Others", others)):
            steps = (
                events | label >> counts | f"{label}Steps" >> beam.Map(lambda r: (r.key, r.step))
            )
            assert_that(steps, equal_to(STEPS), label=f"{label}Check")
        with pytest.raises(ClaimedError, match="spent by 'Clicks' already, and 'Again' would"):
            _ = events | "Again" >> clicks
        transforms = pipeline.to_runner_api().components.transforms.values()
    notes = [note for t in transforms for name, note in t.annotations.items() if "ledger" in name]
    assert any(b"clicks: 25 % of epsilon = 1, delta = 1e-06 (ledger web shop)" in n for n in notes)
    assert [share.claimed_by for share in ledger.shares] == ["Clicks", "Others"]
    assert clicks.display_data()["ledger"].startswith("clicks: 25 %")
    assert pickle.loads(pickle.dumps(clicks)).counter == clicks.counter


def test_what_is_refused_spends_nothing():
    share = dp.Ledger(dp.ZCDP(0.5)).share(1)
    with pytest.raises(ValueError, match="horizon"):
        dp.PrefixCount(share, 0)
    counts = dp.PrefixCount(share, 100)
    events = beam.Pipeline() | beam.Create(EVENTS) | beam.WindowInto(SlidingWindows(10, 5))
    with pytest.raises(ValueError, match=says(SEVERAL_WINDOWS)):
        _ = events | counts
    assert share.claimed_by is None


def test_overspending_is_refused_before_there_is_a_pipeline():
    ledger = dp.Ledger(dp.ZCDP(0.5))
    _ = dp.PrefixCount(ledger.share(0.7, "clicks"), 100)
    with pytest.raises(dp.errors.OverspentError, match=r"asks for 40 % .* but 30 % is left"):
        dp.PrefixCount(ledger.share(0.4, "views"), 100)


def test_counters_of_every_kind_give_an_event():
    tree = dp.calibrate(dp.mechanisms.BinaryTree(10), dp.PureDP(1.0))
    assert tree.dp_event().noise_parameter == 1.0
    for mechanism in (
        dp.mechanisms.NormalizedBLT(100),
        dp.mechanisms.Unbounded(dp.mechanisms.SmoothBinary),
        dp.mechanisms.Sparse(5, 3),
    ):
        assert dp.calibrate(mechanism, dp.ZCDP(0.5)).dp_event() is not None
