"""The demonstration event log: shape, order, seed and distribution."""

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_dpcount.commands import eventlog


def read(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    path = tmp_path_factory.mktemp("log") / "events.csv"
    eventlog.write(path, seed=1)
    return read(path)


def test_default_log_is_one_sorted_day(rows: list[dict[str, str]]) -> None:
    assert len(rows) == 40_000
    assert tuple(rows[0]) == eventlog.COLUMNS
    stamps = [row["timestamp"] for row in rows]
    assert stamps == sorted(stamps)
    assert all(re.fullmatch(r"2026-01-15T\d\d:\d\d:\d\d\.\d{3}Z", stamp) for stamp in stamps)
    assert all(re.fullmatch(r"[0-9a-f]{16}", row["session"]) for row in rows)
    assert {row["action"] for row in rows} == {"view", "purchase"}


def chi_square(counts: Counter[str], exponent: float) -> float:
    expected = sum(counts.values()) * eventlog.page_probabilities(20, exponent)
    observed = np.array([counts[page] for page in eventlog.PAGES])
    return float(np.sum((observed - expected) ** 2 / expected))


def test_pages_are_zipf(rows: list[dict[str, str]]) -> None:
    counts = Counter(row["page"] for row in rows)
    assert set(counts) == set(eventlog.PAGES)
    # 19 degrees of freedom: above 60 less than once in 200,000 seeds.
    assert chi_square(counts, 1.0) < 60
    assert chi_square(counts, 0.9) > 60
    assert chi_square(counts, 1.1) > 60


def test_night_is_quiet_and_evening_busy(rows: list[dict[str, str]]) -> None:
    hours = Counter(int(row["timestamp"][11:13]) for row in rows)
    assert set(hours) == set(range(24))
    assert max(hours, key=hours.__getitem__) in (19, 20)
    assert hours[20] > 8 * hours[3]
    assert hours[12] > 3 * hours[3]


def test_some_visits_have_several_events_and_none_is_long(rows: list[dict[str, str]]) -> None:
    sizes = Counter(row["session"] for row in rows)
    assert 3 < len(rows) / len(sizes) < 5
    assert max(sizes.values()) < 25


def test_purchase_rates(rows: list[dict[str, str]]) -> None:
    views = Counter(row["page"] for row in rows)
    purchases = Counter(row["page"] for row in rows if row["action"] == "purchase")
    for page in eventlog.PAGES:
        # About 560 events of the rarest page: five standard deviations are under 0.1.
        assert 0.0 < purchases[page] / views[page] < 0.4
    rates = [purchases[page] / views[page] for page in eventlog.PAGES]
    assert max(rates) > 2 * min(rates)


def test_seed_decides_every_byte(tmp_path: Path) -> None:
    first, again, other = tmp_path / "1.csv", tmp_path / "2.csv", tmp_path / "3.csv"
    eventlog.write(first, events=500, seed=7)
    eventlog.write(again, events=500, seed=7)
    eventlog.write(other, events=500, seed=8)
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()


def test_more_keys_than_names(tmp_path: Path) -> None:
    eventlog.write(tmp_path / "e.csv", events=5_000, keys=30, exponent=0.0, day="2024-02-29")
    rows = read(tmp_path / "e.csv")
    pages = {row["page"] for row in rows}
    assert pages == set(eventlog.page_names(30))
    assert {"/home", "/page-21", "/page-30"} <= pages
    assert rows[0]["timestamp"].startswith("2024-02-29T")


def test_names_are_distinct_and_ranked() -> None:
    assert len(set(eventlog.page_names(100))) == 100
    assert eventlog.page_names(2) == ["/home", "/search"]


def test_empty_log_is_a_header(tmp_path: Path) -> None:
    eventlog.write(tmp_path / "e.csv", events=0)
    assert (tmp_path / "e.csv").read_bytes() == b"timestamp,page,session,action,ms\n"


@pytest.mark.parametrize("bad", [{"events": -1}, {"keys": 0}, {"day": "tomorrow"}])
def test_bad_arguments(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        eventlog.write(tmp_path / "e.csv", **bad)
    assert not (tmp_path / "e.csv").exists()


def test_command_line(tmp_path: Path) -> None:
    eventlog.main([str(tmp_path / "cli.csv"), "--events", "100", "--seed", "3"])
    eventlog.write(tmp_path / "api.csv", events=100, seed=3)
    assert (tmp_path / "cli.csv").read_bytes() == (tmp_path / "api.csv").read_bytes()
