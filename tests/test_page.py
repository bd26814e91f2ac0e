"""The report, from outputs that are written by hand: what is on the page, and that it is safe."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import math
import re
import struct
import zlib
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import beam_dpcount as dp
from beam_dpcount.commands import graph, histogram, sequences, ticks
from beam_dpcount.commands.figures import looks, running, scales, texts
from beam_dpcount.commands.page import charts, content, counts, markup, write
from tests.pages import DAY, EVIL, RELEASE, Parsed, counted, page_of, task_of, ticked, written

# Safety


def test_keys_are_texts(tmp_path: Path) -> None:
    """Whatever is in them, the page has the same elements, and nothing that acts unseen."""
    tame = page_of(counted(tmp_path, [f"k{i}" for i in range(len(EVIL))], 5))
    page = page_of(counted(tmp_path, EVIL, 5))
    elements, usual = Parsed(page).elements, Parsed(tame).elements
    shape = [(tag, sorted(attributes)) for tag, attributes in elements]
    assert shape == [(tag, sorted(attributes)) for tag, attributes in usual]
    names = Parsed(page).said("bdi")
    for key in EVIL:
        assert markup.visible(key) in names
    assert markup.visible("\u202egnp.exe") == r"\u202egnp.exe"
    assert markup.visible("a\x00b\x1b[31m\r\nc") == r"a\x00b\x1b[31m\r\nc"
    assert markup.visible("") == "''"
    unseen = [letter for letter in page if not letter.isprintable() and letter != "\n"]
    assert unseen == []
    page.encode()


@pytest.mark.long
@settings(deadline=None, max_examples=40)
@given(st.text())
def test_any_text_is_itself_again(text: str) -> None:
    shown = markup.visible(text)
    assert all(letter.isprintable() or letter in "\u200c\u200d" for letter in shown)
    parsed = Parsed(markup.el("p", text, title=text) if text else markup.el("p"))
    assert "".join(parsed.said("p")) == (shown if text else "")
    assert parsed.of("p") == [{"title": shown} if text else {}]


def test_markup_that_is_put_into_a_text_is_escaped() -> None:
    """So a mistake shows, and does no harm."""
    assert markup.el("p", f"{markup.el('b', 'x')}") == "<p>&lt;b&gt;x&lt;/b&gt;</p>"
    assert markup.el("p", markup.el("b", "x")) == "<p><b>x</b></p>"


def test_the_page_loads_and_runs_nothing_else(tmp_path: Path) -> None:
    page = page_of(counted(tmp_path, ["a", "b"], 5))
    parsed = Parsed(page)
    policy = next(m["content"] for m in parsed.of("meta") if "http-equiv" in m) or ""
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = parsed.said(tag)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    for _, attributes in parsed.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        for name in ("src", "href", "action"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"https?:|url\(|@import|fetch|XMLHttp|innerHTML", page)


def test_no_paths_and_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    folder = tmp_path / "home-of-someone"
    folder.mkdir()
    task = counted(folder, ["a"], 3)
    more = ["--secret-env", "COUNTING_SECRET", "--run-id", "run77", "--where", "x=<y>"]
    words = ["--rho", 1, "--tick", 9, "--start", 0, "--horizon", 3, "--key", "who"]
    task = task_of(
        ticks.Ticks,
        ticked(folder / "out.csv", []),
        *words,
        "--timestamp",
        "at",
        "--keys",
        "a",
        *more,
    )
    page = page_of(task, ["warning: weak"])
    for hidden in ("home-of-someone", "in.csv", "COUNTING_SECRET", "0123456789", "run77"):
        assert hidden not in page
    said = Parsed(page)
    assert "warning: weak" in said.said("p")
    parameters = dict(zip(said.said("dt"), said.said("dd"), strict=True))
    assert parameters["--where"] == "x=<y>"
    assert parameters["--tick"] == "9"
    assert parameters["--rho"] == "1"
    assert "a secret, so that it can be replayed" in parameters["Noise"]


# What is said


def test_it_says_what_the_command_prints(tmp_path: Path) -> None:
    task = counted(tmp_path, ["a", "b"], 5)
    said = Parsed(page_of(task)).texts
    pairs = [text for tag, text in said if tag == "dd"]
    assert task.guarantee() in pairs
    assert any(task.estimate().what[1:] in text for text in pairs)
    left_out = "; ".join(task.estimate().left_out)
    assert any(left_out[1:] in text for text in pairs)
    notes = [text for tag, text in said if tag == "p"]
    assert task.picture().covers in notes
    assert task.estimate().remark in notes
    assert task.written().replace(str(tmp_path) + "/", "").replace("private", "Private") in notes
    assert "2 keys x 5 ticks = 10 releases" in [text for tag, text in said if tag == "li"]


def test_the_account_is_a_list_of_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where lines of a ledger go."""
    task = counted(tmp_path, ["a"], 5)
    assert ("Budget", "rho = 1 (zCDP)") in content.account(task)
    monkeypatch.setattr(content, "account", lambda _: [("Left", "rho = 2 of 3")])
    parsed = Parsed(page_of(task))
    assert ("Left" in parsed.said("dt"), "rho = 2 of 3" in parsed.said("dd")) == (True, True)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 20.0])
def test_pure_budgets_in_plain_words(epsilon: float) -> None:
    """Randomized response, under its best tests, reaches the bound; nothing goes beyond."""
    lie = 1 / (1 + math.exp(epsilon))
    powers = []
    for wrong in (0.05, 0.5):
        # Says "yes" on a yes with probability p, and on a no with probability q.
        p, q = (wrong / lie, 0.0) if wrong < lie else (1.0, (wrong - lie) / (1 - lie))
        power = p * (1 - lie) + q * lie
        powers.append(power)
        bound = content.largest_power(dp.PureDP(epsilon), wrong)
        assert bound == pytest.approx(power, abs=1e-9)
    most = math.ceil(100 * powers[0] - 1e-9)
    assert f"right in at most {most} of 100" in content.in_plain_words(dp.PureDP(epsilon))


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 5.0])
@pytest.mark.parametrize("wrong", [0.01, 0.05, 0.5])
def test_zcdp_in_plain_words(rho: float, wrong: float) -> None:
    """The Gaussian mechanism stays below the bound, and not by far."""
    power = norm.cdf(norm.ppf(wrong) + math.sqrt(2 * rho))
    bound = content.largest_power(dp.ZCDP(rho), wrong)
    assert power <= bound <= min(1.0, power + 0.25)


def test_approximate_budgets_in_plain_words() -> None:
    budget = dp.ApproxDP(1.0, 0.01)
    assert content.largest_power(budget, 0.05) == pytest.approx(0.05 * math.e + 0.01)
    assert content.largest_power(budget, 0.05, beside=0.5) == content.largest_power(budget, 0.05)
    beside = content.largest_power(dp.PureDP(1.0), 0.05, beside=0.01)
    assert beside == pytest.approx(0.05 * math.e + 0.01)
    assert "at most 15 of 100" in content.in_plain_words(budget)
    assert "at most 100 of 100" in content.in_plain_words(dp.PureDP(1e6))


# Data


def test_the_data_are_in_the_page(tmp_path: Path) -> None:
    task = counted(tmp_path, ["a,b", 'say "x"', "two\nlines"], 4)
    (link,) = Parsed(page_of(task)).of("a")
    assert link["download"] == "out.csv"
    kind, _, text = (link["href"] or "").partition(",")
    assert kind == "data:text/csv;charset=utf-8;base64"
    rows = list(csv.DictReader(base64.b64decode(text).decode().splitlines(True)))
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        expected = list(csv.DictReader(file))
    assert len(rows) == 12
    assert [(r["key"], float(r["count"]), r["timestamp"]) for r in rows] == [
        (r["key"], float(r["count"]), r["timestamp"]) for r in expected
    ]


def test_data_that_are_too_large_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = counted(tmp_path, ["a"], 50)
    size = len(base64.b64decode(str(Parsed(page_of(task)).of("a")[0]["href"]).partition(",")[2]))
    for most, links in ((size, 1), (size - 1, 0)):
        monkeypatch.setattr(write, "MOST_EMBEDDED", most)
        parsed = Parsed(page_of(task))
        assert len(parsed.of("a")) == links
    assert any("All releases are in the file out.csv" in text for text in parsed.said("p"))


# Charts of running counts


def path_points(d: str) -> np.ndarray:
    return np.array([[float(n) for n in pair.split()] for pair in d[1:].split("L")])


def test_lines_are_the_releases() -> None:
    x, value = np.array([0.0, 5.0, 10.0]), np.array([10.0, 0.0, -10.0])
    half, none = np.array([1.0, 2.0, 0.0]), np.full(3, np.nan)
    line = charts.Line(x, running.Panel("k", x, x, value, half, none))
    frame = charts.Frame(344, 200, "t", "d")
    axes = scales.Axis(0, 10, fixed=[]), scales.Axis(-20, 20, fixed=[(0, "0")])
    parsed = Parsed(charts.lines(frame, [line], *axes))
    paths = [(p["class"] or "", p["d"] or "") for p in parsed.of("path")]
    (stroke,) = (path_points(d) for kind, d in paths if kind.startswith("line"))
    left, right, bottom, top = charts.left_of(frame, axes[1]), 344 - 14, 200 - 22, 22
    np.testing.assert_allclose(stroke[:, 0], [left, (left + right) / 2, right], atol=0.06)
    each = (bottom - top) / 40
    np.testing.assert_allclose(stroke[:, 1], bottom - each * (value + 20), atol=0.06)
    (band,) = (path_points(d.rstrip("Z")) for kind, d in paths if kind.startswith("band"))
    high, low = band[:3, 1], band[5:2:-1, 1]
    np.testing.assert_allclose(low - high, 2 * each * np.array([1, 2, 0]), atol=0.11)
    assert len(parsed.of("circle")) == 3


def test_each_key_has_a_chart_and_all_are_in_the_table(tmp_path: Path) -> None:
    keys = [f"key{i:02}" for i in range(30)]
    parsed = Parsed(page_of(counted(tmp_path, keys, 4)))
    headings = [text for text in parsed.said("bdi") if text.startswith("key")]
    legend, charted, listed = keys[:11], keys[:24], keys
    assert headings == [*legend, *charted, *listed]
    assert [text for text in parsed.said("option") if text in keys] == charted
    cells = r"<tr><td><bdi class=\"name\">(.*?)</bdi></td>(.*?)</tr>"
    rows = re.findall(cells, page_of(counted(tmp_path, keys, 4)))
    assert [name for name, _ in rows] == keys
    last = [re.sub("<.*?>", " ", row).split()[1] for _, row in rows]
    assert (last[0], last[29]) == ("4.0", "2,904.0")
    assert "Of 30 keys the first 24, in the order in which they were given." in parsed.said("p")


def test_keys_that_were_asked_for(tmp_path: Path) -> None:
    task = counted(tmp_path, ["a", "b", "c"], 4)
    task.options.plot_keys = ["c", "a"]
    parsed = Parsed(page_of(task))
    assert parsed.said("bdi") == ["c", "a", "c", "a", "a", "b", "c"]
    assert any("Keys as asked for" in text for text in parsed.said("p"))
    task.options.plot_keys = ["zoe"]
    parsed = Parsed(page_of(task))
    assert parsed.said("bdi") == ["a", "b", "c"]
    assert "None of the keys that were asked for has releases." in parsed.said("p")


def test_long_series_are_thinned_and_the_page_says_so(tmp_path: Path) -> None:
    few, many = (Parsed(page_of(counted(tmp_path, ["a"], n))) for n in (240, 5000))
    said = [text for text in many.said("p") if text.startswith("Lines are drawn through at most")]
    assert len(said) == 1
    assert "5,000 releases" in said[0]
    assert not any("drawn through" in text for text in few.said("p"))
    lengths = []
    for chart in (c for c in many.of("svg") if "data-points" in c):
        points = json.loads(chart["data-points"] or "")
        lengths.append(len(points["x"]))
        assert len(points["t"]) == len(points["y"]) == lengths[-1]
        assert points["t"][0] == "2026-01-15 00:10, step 1: 1.0 ± 5.9"
        assert points["t"][-1] == "2026-02-18 17:20, step 5,000: 5,000.0 ± 5.9"
    assert lengths == [counts.MANY_POINTS, counts.POINTS]
    tables_of = many.said("summary")
    assert tables_of == ["In numbers, 12 of 5,000"]


def test_the_key_of_all_rows_is_not_named(tmp_path: Path) -> None:
    """Its name says nothing; but an empty name of a column is one."""
    rows = [("all", t, "", 1.0, 1.0) for t in range(1, 4)]
    output = written(tmp_path / "out.csv", RELEASE, rows)
    words = "--edge", "u", "v", "--vertices", 5, "--what", "edges", "--horizon", 9, "--rho", 1
    parsed = Parsed(page_of(task_of(graph.Graph, output, *words)))
    assert (parsed.of("h3"), parsed.said("bdi")) == ([], [])
    assert "last count 1.0 ± 2.0" in parsed.said("p")
    parsed = Parsed(page_of(counted(tmp_path, [""], 3)))
    assert parsed.said("bdi") == ["''"]


def test_one_release_and_none(tmp_path: Path) -> None:
    parsed = Parsed(page_of(counted(tmp_path, ["a"], 1)))
    assert "last count 1.0 ± 5.9" in parsed.said("p")
    task = counted(tmp_path, ["a"], 1)
    ticked(tmp_path / "out.csv", [])
    assert "There are no releases." in Parsed(page_of(task)).said("p")


def test_short_keys_have_times_of_their_own(tmp_path: Path) -> None:
    """A key that is there for a minute of a day is not a dot at the edge."""
    rows = [("long", t, DAY + t * 600_000_000, 1.0, 1.0) for t in range(1, 100)]
    rows += [("short", t, DAY + t * 1_000_000, 1.0, 1.0) for t in range(1, 50)]
    task = counted(tmp_path, ["long", "short"], 99)
    ticked(tmp_path / "out.csv", rows)
    spans = []
    for chart in (c for c in Parsed(page_of(task)).of("svg") if "data-points" in c):
        x = json.loads(chart["data-points"] or "")["x"]
        spans.append(x[-1] - x[0])
    assert min(spans) > 250


# Axes


@settings(deadline=None, max_examples=40)
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e9), st.integers(3, 8))
def test_ticks_of_numbers(low: float, span: float, most: int) -> None:
    axis = scales.numbers(low, low + span)
    at = [x for x, _ in axis.ticks(most)]
    assert 1 <= len(at) <= most + 1
    assert all(axis.low <= x <= axis.high for x in at)
    steps = np.diff(at)
    assert len(at) < 3 or np.allclose(steps, steps[0], rtol=1e-4)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(-62_000_000_000, 253_000_000_000),
    st.integers(1, 10**17),
    st.sampled_from(["UTC", "Asia/Tokyo", "Europe/Berlin", "America/St_Johns"]),
)
def test_ticks_of_times(second: int, span: int, zone: str) -> None:
    low = second * 10**6
    high = min(low + span, 253_402_300_799 * 10**6)
    axis = scales.times(low, max(low, high), ZoneInfo(zone))
    at = [x for x, _ in axis.ticks(6)]
    assert at == sorted(at)
    assert len(at) <= 9
    assert all(low <= x <= high for x in at)
    assert high - low < 8 * 600 * 10**6 or at


MORNING = "time of day, UTC (1970-01-01)"
TOKYO = "time (Asia/Tokyo), 1970"


@pytest.mark.parametrize(
    ("low", "high", "zone", "labels", "caption"),
    [
        (0, 86_400, "UTC", "00:00,06:00,12:00,18:00,00:00", MORNING),
        (3600, 7200, "UTC", "01:00,01:10,01:20,01:30,01:40,01:50,02:00", MORNING),
        (0, 4, "UTC", "00:00:00,00:00:01,00:00:02,00:00:03,00:00:04", MORNING),
        (
            0,
            3 * 86_400,
            "Asia/Tokyo",
            "12:00,2 Jan,12:00,3 Jan,12:00,4 Jan",
            "time (Asia/Tokyo), 1970",
        ),
        (0, 365 * 86_400, "UTC", "1970,Apr 1970,Jul 1970,Oct 1970,1971", "time (UTC), 1970"),
    ],
)
def test_what_is_written_at_ticks(
    low: int, high: int, zone: str, labels: str, caption: str
) -> None:
    axis = scales.times(low * 10**6, high * 10**6, ZoneInfo(zone))
    assert ([text for _, text in axis.ticks(6)], axis.caption) == (labels.split(","), caption)


def test_times_in_full() -> None:
    for micros, shown in ((0, "00:00"), (61_000_000, "00:01:01"), (1_500, "00:00:00.0015")):
        assert scales.when(micros, timezone.utc) == f"1970-01-01 {shown}"
    assert scales.local(0, ZoneInfo("Asia/Tokyo")) == datetime(1970, 1, 1, 9)


# Last releases


def test_histograms(tmp_path: Path) -> None:
    header = "key", "step", "timestamp", "x", "y", "z", "stddev"
    rows = [("a", 9, "", 10.0, -5.0, 0.0, 2.0), ("b", 8, "", 20.0, 5.0, 1.0, 2.0)]
    output = written(tmp_path / "out.csv", header, rows)
    words = "--key", "k", "--item", "i", "--domain", "x", "y", "z", "--horizon", 9, "--rho", 1
    parsed = Parsed(page_of(task_of(histogram.Histogram, output, *words)))
    drawn = [float(r["width"] or "") for r in parsed.of("rect")]
    by_value = np.array(drawn) / np.array([10, 5, 1, 20, 5, 1])
    np.testing.assert_allclose(by_value[[0, 1, 3, 4, 5]], by_value[3], rtol=0.03)
    assert drawn[2] == 0
    assert parsed.said("bdi") == ["a", "x", "y", "z", "b", "x", "y", "z"]
    assert "\N{MINUS SIGN}5.0 ± 3.9" in parsed.said("td")
    top = task_of(histogram.Histogram, output, *words, "--top", 1)
    parsed = Parsed(page_of(top))
    assert len(parsed.of("rect")) == 2
    assert any("biased upwards" in text for text in parsed.said("p"))


def test_words(tmp_path: Path) -> None:
    header = "key", "step", "timestamp", "rank", "word", "value", "low", "high"
    rows = [("all", 9, "", 1, "<ab>", 7.0, 5.0, 9.0), ("all", 9, "", 2, "b", 3.0, 1.0, 5.0)]
    output = written(tmp_path / "out.csv", header, rows)
    words = "--letter", "l", "--domain", "a", "b", "--max-length", 2, "--horizon", 9, "--rho", 1
    parsed = Parsed(page_of(task_of(sequences.Sequences, output, *words)))
    assert parsed.said("bdi") == ["after 9 rows", "<ab>", "b"]
    assert parsed.said("td") == ["7.0 ± 2.0", "3.0 ± 2.0"]
    widths = [float(r["width"] or "") for r in parsed.of("rect")]
    assert widths[0] / widths[1] == pytest.approx(7 / 3, rel=0.01)


def test_degrees(tmp_path: Path) -> None:
    output = written(
        tmp_path / "out.csv",
        ("key", "step", "timestamp", "1", "2+", "stddev"),
        [("all", 4, "", 6.0, 3.0, 1.0)],
    )
    words = "--edge", "u", "v", "--vertices", 5, "--what", "degrees", "--max-degree", 2
    task = task_of(graph.Graph, output, *words, "--horizon", 9, "--rho", 1)
    parsed = Parsed(page_of(task))
    heights = [float(r["height"] or "") for r in parsed.of("rect")]
    assert heights[0] / heights[1] == pytest.approx(2, rel=0.01)
    assert parsed.said("bdi") == ["after 4 rows", "1", "2+"]


def pixels(link: str) -> np.ndarray:
    """An image of `charts`, decoded."""
    data = base64.b64decode(link.partition(",")[2])
    width, height = struct.unpack(">II", data[16:24])
    place, body = 8, b""
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        kind = data[place + 4 : place + 8]
        inner = data[place + 8 : place + 8 + size]
        (check,) = struct.unpack(">I", data[place + 8 + size : place + 12 + size])
        assert zlib.crc32(kind + inner) == check
        body += inner if kind == b"IDAT" else b""
        place += 12 + size
    rows = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + 3 * width)
    return rows[:, 1:].reshape(height, width, 3)


def test_weights(tmp_path: Path) -> None:
    pairs = "(0,1)", "(0,2)", "(1,2)"
    words = "--edge", "u", "v", "--vertices", 3, "--what", "cuts", "--horizon", 9, "--rho", 1
    output = tmp_path / "out.csv"
    task = task_of(graph.Graph, output, *words)
    pairs = task.labels  # type: ignore[attr-defined]
    header = "key", "step", "timestamp", *pairs, "stddev"
    written(output, header, [("all", 4, "", 8.0, -8.0, 0.0, 1.0)])
    parsed = Parsed(page_of(task))
    image = pixels(parsed.of("image")[0]["href"] or "")
    assert image.shape == (3, 3, 3)
    np.testing.assert_array_equal(image, image.transpose(1, 0, 2))
    red, blue = image[0, 2].astype(int), image[0, 1].astype(int)
    assert red[0] > 60 + red[2]  # negative
    assert blue[2] > 60 + blue[0]  # positive
    assert image[1, 2].min() > 240
    assert bytes(image[1, 1]).hex() == looks.NONE[1:].lower()
    assert parsed.said("td") == ["8.0 ± 2.0", "\N{MINUS SIGN}8.0 ± 2.0", "0.0 ± 2.0"]


def test_numbers_of_small_noise_keep_their_digits() -> None:
    shown = [texts.with_band(1.25, half) for half in (0.0, 0.02, 0.7, 12.0, math.inf)]
    assert shown == ["1.2 ± 0.0", "1.25 ± 0.02", "1.2 ± 0.7", "1 ± 12", "1"]
    assert texts.with_band(-0.01, 1.0) == "0.0 ± 1.0"


# Colours

# Machado, Oliveira and Fernandes 2009, of linear RGB; what each kind of eye sees.
SEEN = [
    np.array(rows.split(), dtype=float).reshape(3, 3)
    for rows in (
        "1 0 0  0 1 0  0 0 1",
        "0.152286 1.052583 -0.204868  0.114503 0.786281 0.099216  -0.003882 -0.048116 1.051998",
        "0.367322 0.860646 -0.227968  0.280085 0.672501 0.047413  -0.011820 0.042940 0.968881",
        "1.255528 -0.076749 -0.178779  -0.078411 0.930809 0.147602  0.004733 0.691367 0.303900",
    )
]


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750]]
    xyz = np.array([*to_xyz, [0.0193339, 0.1191920, 0.9503041]]) @ np.clip(rgb, 0, 1)
    t = xyz / np.array([0.95047, 1, 1.08883])
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(one: str, other: str) -> float:
    """How different two colours are, in CIELAB, to the eyes that tell them apart least."""
    seen = ((lab(m @ linear(one)), lab(m @ linear(other))) for m in SEEN)
    return min(float(np.linalg.norm(a - b)) for a, b in seen)


@pytest.mark.parametrize(
    ("palette", "ground"),
    [(looks.LIGHT, "#ffffff"), (looks.DARK, "#14181d")],
    ids=["light", "dark"],
)
def test_twelve_lines_are_told_apart(palette: Sequence[str], ground: str) -> None:
    assert len(set(palette)) == 12
    assert len(set(looks.DASHES)) == 4
    for i, one in enumerate(palette):
        bright, dark = sorted([linear(one), linear(ground)], key=lambda c: -c.sum())
        weights = np.array([0.2126, 0.7152, 0.0722])
        assert (weights @ bright + 0.05) / (weights @ dark + 0.05) > 2.8  # of contrast
        for j, other in enumerate(palette[:i]):
            if (i - j) % len(looks.DASHES) == 0:
                assert apart(one, other) > 20, (one, other)
            if i - j == 1:
                assert apart(one, other) > 18, (one, other)


def test_the_page_has_the_colours_and_dashes_of_pictures() -> None:
    style = write._asset("style.css")
    light, dark = style.split("@media screen and (prefers-color-scheme: dark)")  # print is light
    for palette, part in ((looks.LIGHT, light), (looks.DARK, dark)):
        assert re.findall(r"--s\d+: (#\w+);", part) == [colour.lower() for colour in palette]
    width = float(re.search(r"\.line {[^}]*stroke-width: ([\d.]+)", style)[1])  # type: ignore[index]
    for number, dashes in enumerate(looks.DASHES[1:], start=1):
        found = re.search(rf"\.d{number} {{ stroke-dasharray: ([\d. ]+);", style)
        assert found
        np.testing.assert_allclose([float(x) for x in found[1].split()], width * np.array(dashes))


def test_own_axes() -> None:
    def panel(first: float, last: float) -> running.Panel:
        ends = np.array([first, last])
        return running.Panel("k", ends, ends, ends, ends, ends)

    assert not running.own_axes([], True)
    assert not running.own_axes([panel(0, 1)], True)
    assert not running.own_axes([panel(0, 10), panel(0, 5)], True)
    assert running.own_axes([panel(0, 10), panel(0, 4.9)], True)
    assert running.own_axes([panel(0, 10), panel(10, 20), panel(3, 8)], False)
