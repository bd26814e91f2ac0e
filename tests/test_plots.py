"""Figures: real PNG files of the right size, with the right words, for odd inputs too."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("matplotlib")

from matplotlib import font_manager
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D
from matplotlib.text import Text

from beam_dpcount.commands.figures import counts, fonts, frames, pictures, running, texts
from beam_dpcount.commands.figures import series as plots
from benchmarks.papers.panels import panels
from tests.pictures import histograms, prefix_counts

DAY = 1_768_435_200_000_000  # 2026-01-15T00:00Z in microseconds
MINUTE = 60_000_000


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # matplotlib 3.8 uses names that newer releases of pyparsing deprecate.
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures written so far; they are still written to their files."""
    caught: list[Figure] = []
    save = frames.save

    def catch(figure: Figure, path: Any, **options: Any) -> None:
        caught.append(figure)
        save(figure, path, **options)

    monkeypatch.setattr(frames, "save", catch)
    return caught


def words_of(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text)}


def pixels(path: Path) -> tuple[int, ...]:
    return tuple(imread(path).shape[1::-1])


def releases(keys: int, steps: int, sd: float = 3.0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Shuffled releases of keys k1 (largest), k2, ... and their exact counts."""
    rng = np.random.default_rng(5)
    key, step = np.divmod(rng.permutation(keys * steps), steps)
    truth = {f"k{k + 1}": 100.0 * (keys - k) * np.arange(1, steps + 1) for k in range(keys)}
    exact = np.array([truth[f"k{k + 1}"][s] for k, s in zip(key, step, strict=True)])
    columns = {
        "key": [f"k{k + 1}" for k in key],
        "step": step,
        "timestamp": DAY + (step + 1) * MINUTE,
        "value": exact + rng.normal(scale=sd, size=exact.size),
        "stddev": np.full(exact.size, sd),
    }
    return columns, truth


@pytest.mark.slow
def test_panels_titles_and_legend(tmp_path: Path, figures: list[Figure]) -> None:
    columns, truth = releases(keys=20, steps=50)
    path = tmp_path / "p.png"
    prefix_counts(columns, path, title="T", guarantee="0.5-zCDP " * 40, truth=truth)
    assert pixels(path) == (1800, 1200)
    words = words_of(figures[0])
    assert {"T", "private count", "exact (shown for demonstration only)"} <= words
    assert "time of day, UTC (2026-01-15)" in words
    # All have as many releases: ranked by name.
    assert words >= {"k1", "k10", "k12", "k16", "k5", "k9"}
    assert "k2" not in words
    (footer,) = (word for word in words if word.startswith("0.5-zCDP"))
    assert "Of 20 keys those of ranks 1, 2, 4, 8, 16, 20 by" in footer.replace("\n", " ")
    assert max(len(line) for word in words for line in word.splitlines()) < 170


def test_drawn_numbers_are_the_releases_in_order(tmp_path: Path, figures: list[Figure]) -> None:
    columns, truth = releases(keys=1, steps=60)
    prefix_counts(
        columns, tmp_path / "p.png", title="T", guarantee="G", truth=truth, time_axis=False
    )
    strip, count = figures[0].axes
    order = np.argsort(columns["step"])
    value = columns["value"][order]
    private, exact = count.lines
    np.testing.assert_array_equal(private.get_xdata(), np.arange(60))
    np.testing.assert_array_equal(private.get_ydata(), value)
    np.testing.assert_array_equal(exact.get_ydata(), truth["k1"])
    np.testing.assert_array_equal(strip.lines[-1].get_ydata(), value - truth["k1"])
    (band,) = [c for c in strip.collections if isinstance(c, PolyCollection)]
    assert np.abs(band.get_paths()[0].vertices[:, 1]).max() == pytest.approx(1.96 * 3)  # type: ignore[index]


@pytest.mark.slow
def test_without_truth_nothing_is_called_exact(tmp_path: Path, figures: list[Figure]) -> None:
    columns, _ = releases(keys=2, steps=10)
    prefix_counts(columns, tmp_path / "p.png", title="T", guarantee="G", time_axis=False)
    words = words_of(figures[0])
    assert not any("exact" in word for word in words)
    assert {"± 1.96 standard deviations", "step"} <= words


@pytest.mark.long
@pytest.mark.slow
def test_reads_arrow_columns(tmp_path: Path) -> None:
    columns, truth = releases(keys=3, steps=10)
    prefix_counts(columns, tmp_path / "a.png", title="T", guarantee="G", truth=truth)
    table = {name: pa.array(column) for name, column in columns.items()}
    table["timestamp"] = table["timestamp"].cast(pa.timestamp("us", tz="UTC"))
    prefix_counts(table, tmp_path / "b.png", title="T", guarantee="G", truth=truth)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_no_releases(tmp_path: Path, figures: list[Figure]) -> None:
    empty: dict[str, Any] = {name: [] for name in ("key", "step", "timestamp", "value", "stddev")}
    prefix_counts(empty, tmp_path / "p.png", title="T", guarantee="G")
    assert pixels(tmp_path / "p.png") == (1800, 1200)
    assert {"There are no releases.", "T", "G"} <= words_of(figures[0])


BEAM_MIN_TIMESTAMP = -9_223_372_036_854_775_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("timestamp", "label"),
    [
        ([DAY], "time of day, UTC (2026-01-15)"),
        ([None], "step"),
        (None, "step"),
        ([BEAM_MIN_TIMESTAMP], "step"),
    ],
)
def test_single_release(
    tmp_path: Path, figures: list[Figure], timestamp: list[int | None] | None, label: str
) -> None:
    one = {"key": ["a"], "step": [9], "timestamp": timestamp, "value": [41.3], "stddev": [12.0]}
    prefix_counts(one, tmp_path / "p.png", title="T", guarantee="G", truth={"a": [40]})
    assert pixels(tmp_path / "p.png") == (1800, 1200)
    assert {label, "last count 41 ± 24"} <= words_of(figures[0])


@pytest.mark.slow
def test_times_that_do_not_tell_steps_apart_and_several_days(
    tmp_path: Path, figures: list[Figure]
) -> None:
    columns, _ = releases(keys=2, steps=5)
    same = {**columns, "timestamp": np.full(10, DAY)}
    prefix_counts(same, tmp_path / "p.png", title="T", guarantee="G")
    assert "step" in words_of(figures[0])
    days = {**columns, "timestamp": DAY + columns["step"] * 1440 * MINUTE}
    prefix_counts(days, tmp_path / "p.png", title="T", guarantee="G")
    assert "time (UTC), 2026" in words_of(figures[1])


@pytest.mark.long
@pytest.mark.slow
def test_missing_and_zero_standard_deviations(tmp_path: Path) -> None:
    columns, _ = releases(keys=2, steps=3)
    for stddev in (np.zeros(6), [None] * 6, [np.inf] * 6):
        odd = {**columns, "stddev": stddev}
        prefix_counts(odd, tmp_path / "p.png", title="T", guarantee="G")


@pytest.mark.slow
def test_odd_keys(tmp_path: Path, figures: list[Figure], monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[Any] = [
        "$x_1$ at $5",
        "東京" * 30,
        "🦊",
        "مرحبا",
        "a\nb\ud800\x00",
        "",
        b"\xff",
        ("a", 1),
    ]
    columns = {
        "key": keys,
        "step": [0] * len(keys),
        "value": range(len(keys), 0, -1),
        "stddev": [1.0] * len(keys),
    }
    monkeypatch.setattr(counts, "MOST", 9)
    prefix_counts(columns, tmp_path / "p.png", title="$ and $", guarantee="$ or $")
    assert pixels(tmp_path / "p.png") == (1800, 1800)  # three rows of panels
    words = words_of(figures[0])
    assert {"$x_1$ at $5", "東京" * 7 + "東…", "a\ufffdb\ufffd\ufffd", "''", "('a', 1)"} <= words


@pytest.mark.exhaustive
def test_one_band_for_all_keys_where_all_are_alike(tmp_path: Path, figures: list[Figure]) -> None:
    """In the empty corner, or below; no panel's tick labels hang over nothing."""
    for keys in (1, 2, 5, 6):
        columns, _ = releases(keys=keys, steps=50)
        prefix_counts(columns, tmp_path / "p.png", title="T", guarantee="G.")
        words = words_of(figures[-1])
        assert len(figures[-1].axes) == keys + 1
        assert ("the band of every key" in words) == (keys > 1)
        assert ("G. Each panel has its own scale." in words) == (keys > 1)
    labelled = [bool(axes.get_xlabel()) for axes in figures[2].axes]  # the band, five keys
    assert labelled == [True, False, False, False, True, True]


@pytest.mark.slow
def test_keys_of_other_lengths_have_bands_of_their_own(
    tmp_path: Path, figures: list[Figure]
) -> None:
    columns, _ = releases(keys=2, steps=50)
    kept = (np.array(columns["key"]) == "k1") | (columns["step"] < 20)
    fewer = {name: np.asarray(column)[kept] for name, column in columns.items()}
    prefix_counts(fewer, tmp_path / "p.png", title="T", guarantee="G")
    assert len(figures[0].axes) == 4


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("timed", [True, False], ids=["times", "steps"])
def test_short_keys_have_an_axis_of_their_own(
    timed: bool, tmp_path: Path, figures: list[Figure]
) -> None:
    """On an axis that all share they are a stroke at its edge."""
    columns, _ = releases(keys=3, steps=50)
    for most, own in ((30, False), (20, True)):
        kept = (np.array(columns["key"]) != "k2") | (columns["step"] < most)
        fewer = {name: np.asarray(column)[kept] for name, column in columns.items()}
        path = tmp_path / "p.png"
        prefix_counts(fewer, path, title="T", guarantee="G.", time_axis=timed)
        counts = {axes.get_title("left"): axes for axes in figures[-1].axes}
        lines = {key: counts[key].lines[0].get_xdata() for key in ("k1", "k2")}
        widths = [np.ptp(counts[key].get_xlim()) for key in lines]
        assert widths[1] == pytest.approx(widths[0] * ((most - 1) / 49 if own else 1), rel=0.01)
        assert np.ptp(lines["k2"]) > 0.35 * widths[1]
        said = next(word for word in words_of(figures[-1]) if word.startswith("G."))
        assert (f", and {'time' if timed else 'steps'} of its own." in said) == own
        strips = [axes for axes in figures[-1].axes if not axes.get_title("left")]
        assert [bool(axes.get_xlabel()) for axes in strips] == [True] * 3


def test_a_series_that_is_alone_has_no_name_and_no_rank(
    tmp_path: Path, figures: list[Figure]
) -> None:
    columns, _ = releases(keys=1, steps=5)
    for single in (True, False):
        prefix_counts(columns, tmp_path / "p.png", title="T", guarantee="G", single=single)
        words = words_of(figures[-1])
        assert ("k1" in words) == (not single)
        assert any(word.startswith("last count") for word in words)
        assert not any("rank" in word or "Of 1 " in word for word in words)


# Fonts


def test_characters_that_no_font_has_are_said(
    tmp_path: Path, figures: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "_installed", lambda: iter(()))
    fonts.fonts_for.cache_clear()
    columns, _ = releases(keys=1, steps=5)
    for key, boxes in (("plain é", False), ("東京", True)):
        named = {**columns, "key": [key] * 5}
        prefix_counts(named, tmp_path / "p.png", title="T", guarantee="G")
        said = next(word for word in words_of(figures[-1]) if word.startswith("G"))
        assert said.endswith(frames.BOXES) == boxes
    fonts.fonts_for.cache_clear()


def test_fonts_are_taken_for_what_they_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, figures: list[Figure]
) -> None:
    """Wide ones first, then by name; no more than are needed."""
    has = {"one": "東", "two": "東京", "three": "\u0e01", "four": "\u0e01"}
    monkeypatch.setattr(fonts, "_installed", lambda: iter((name, name) for name in has))
    monkeypatch.setattr(fonts, "_characters", lambda path: {ord(c) for c in has.get(path, "")})
    fonts.fonts_for.cache_clear()
    assert fonts.fonts_for(frozenset("東")) == (("one",), frozenset())
    assert fonts.fonts_for(frozenset("東京\u0e01")) == (("one", "two", "three"), frozenset())
    assert fonts.fonts_for(frozenset("京\u0e02")) == (("two",), frozenset("\u0e02"))
    fonts.fonts_for.cache_clear()


def test_other_scripts_are_drawn_by_fonts_that_are_here(
    tmp_path: Path, figures: list[Figure]
) -> None:
    found = [(name, path) for name, path in fonts._installed() if "DejaVu" not in name]
    usual = fonts._characters(font_manager.findfont("DejaVu Sans"))
    lacking = [(name, chr(min(x))) for name, path in found if (x := more(path) - usual)]
    if not lacking:
        pytest.skip("no font is installed that has what DejaVu Sans lacks")
    columns, _ = releases(keys=1, steps=5)
    named = {**columns, "key": [lacking[0][1] + "x"] * 5}
    prefix_counts(named, tmp_path / "p.png", title="T", guarantee="G")
    (title,) = (t for t in figures[0].findobj(Text) if t.get_text() == lacking[0][1] + "x")
    assert len(title.get_fontfamily()) > 1
    assert not any(frames.BOXES in word for word in words_of(figures[0]))


def more(path: str) -> set[int]:
    """The letters of a font."""
    return {c for c in fonts._characters(path) if c > 0x250 and chr(c).isalpha()}


def test_times_in_a_zone(tmp_path: Path, figures: list[Figure]) -> None:
    columns, _ = releases(keys=1, steps=50)
    zone = timezone(timedelta(hours=-8), "Pacific")
    prefix_counts(columns, tmp_path / "p.png", title="T", guarantee="G", zone=zone)
    words = words_of(figures[0])
    assert "time of day, Pacific (2026-01-14)" in words
    assert "16:20" in words


@pytest.mark.slow
def test_sums_are_called_sums(tmp_path: Path, figures: list[Figure]) -> None:
    columns, _ = releases(keys=1, steps=50)
    columns["value"] = -columns["value"] - 1000
    prefix_counts(columns, tmp_path / "p.png", title="T", guarantee="G", sum_of="$amount_1")
    words = words_of(figures[0])
    assert "private sum of $amount_1" in words
    assert not any("private count" in word for word in words)
    (note,) = (word for word in words if "last sum" in word)
    assert "last sum \N{MINUS SIGN}" in note


def test_one_tick_has_one_time(tmp_path: Path, figures: list[Figure]) -> None:
    one = {"key": ["a"], "step": [1], "timestamp": [DAY], "value": [-0.04], "stddev": [1.0]}
    prefix_counts(one, tmp_path / "p.png", title="T", guarantee="G")
    words = words_of(figures[0])
    assert {"00:00:00", "last count 0.0 ± 2.0"} <= words
    assert [word for word in words if ":" in word] == ["00:00:00"]


def drawn_keys(figure: Figure) -> list[str]:
    """The panels' titles, in order."""
    shown = [axes.get_title("left") for axes in figure.axes]
    return [title for title in shown if title.startswith("k")]


@pytest.mark.exhaustive
def test_keys_are_not_chosen_by_their_values(tmp_path: Path, figures: list[Figure]) -> None:
    """They would be chosen for their noise, and be off by more than their bands say."""
    columns, _ = releases(keys=9, steps=8)
    counted = {f"k{number + 1}": 8 - number // 2 for number in range(9)}
    kept = [s < counted[k] for k, s in zip(columns["key"], columns["step"], strict=True)]
    columns = {name: np.asarray(column)[kept] for name, column in columns.items()}
    listed = [f"k{number}" for number in (7, 3, 9, 1, 2, 4, 8, 6, 5)]
    for sign in (1, -1):
        given = {**columns, "value": sign * columns["value"]}
        how: dict[str, Any] = {"path": tmp_path / "p.png", "title": "T", "guarantee": "G."}
        prefix_counts(given, **how)
        prefix_counts(given, **how, order=listed)
        prefix_counts(given, **how, only=["k8", "none", "k3"], order=listed)
        by_rows, in_order, asked = (drawn_keys(figure) for figure in figures[-3:])
        assert by_rows == ["k1", "k2", "k3", "k4", "k8", "k9"]  # ranks 1, 2, 3, 4, 8, 9
        assert in_order == listed[:6]
        assert asked == ["k8", "k3"]
    said = [
        next(word for word in words_of(figure) if word.startswith("G.")).replace("\n", " ")
        for figure in figures[-3:]
    ]
    assert "Of 9 keys those of ranks 1, 2, 3, 4, 8, 9 by their number of releases" in said[0]
    assert "Of 9 keys the first 6, in the order in which they were given." in said[1]
    assert "Keys as asked for" in said[2]


@pytest.mark.slow
def test_long_titles_are_wrapped(tmp_path: Path, figures: list[Figure]) -> None:
    columns, _ = releases(keys=1, steps=3)
    title = "Private running sums of what was clipped and rounded and left out, " * 3
    prefix_counts(columns, tmp_path / "p.png", title=title, guarantee="G")
    (shown,) = (word for word in words_of(figures[0]) if word.startswith("Private running"))
    assert shown.replace("\n", " ") == title.strip()
    assert max(map(len, shown.splitlines())) <= 96


@pytest.mark.slow
def test_items_are_drawn_in_their_order(tmp_path: Path, figures: list[Figure]) -> None:
    """Not by their values, which are noisy, unless that is asked for."""
    items = [f"i{number:02}" for number in range(25)]
    for values in (range(25), range(25, 0, -1)):
        panel = pictures.Panel("a", "", list(values), 1.0)
        histograms(items, [panel], tmp_path / "p.png")
        (axes,) = figures[-1].axes
        assert [label.get_text() for label in axes.get_yticklabels()] == items[:20]
        assert [bar.get_width() for bar in axes.patches] == list(values)[:20]  # type: ignore[attr-defined]


def test_histograms_compare(tmp_path: Path, figures: list[Figure]) -> None:
    """The same items in the same order: the largest totals of the panels, if asked for."""
    start = "com.example.application.main."
    items = [start + name for name in ("first", "second", "third")]
    panels = [
        pictures.Panel("a" * 50, "after 9 rows", [1.0, 5, 2], 1.0),
        pictures.Panel("b", "after 1 row", [9.0, 1, 0], 1.0),
    ]
    path = tmp_path / "p.png"
    histograms(items, panels, path, top=2)
    first, second = figures[0].axes
    drawn = [[bar.get_width() for bar in axes.patches] for axes in (first, second)]  # type: ignore[attr-defined]
    assert drawn == [[1, 5], [9, 1]]
    names = [label.get_text() for label in first.get_yticklabels()]
    assert names == ["com.example.app…tion.main.first", "com.example.app…ion.main.second"]
    assert {"a" * 30 + "…", "after 9 rows", "b", "after 1 row"} <= words_of(figures[0])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("x" * 30, "x" * 30),
        ("a" * 20 + "b" * 20, "a" * 15 + "…" + "b" * 15),
        ("東" * 10 + "京" * 10, "東" * 7 + "…" + "京" * 7),
    ],
)
def test_items_are_cut_in_the_middle(text: str, shown: str) -> None:
    assert texts.shortened(text, middle=True) == shown


def test_mismatches_are_errors(tmp_path: Path) -> None:
    columns, truth = releases(keys=2, steps=5)
    path = tmp_path / "p.png"
    short = {**truth, "k1": truth["k1"][:4]}
    with pytest.raises(ValueError, match=r"'k1': 4 counts, 5 releases"):
        prefix_counts(columns, path, title="T", guarantee="G", truth=short)
    with pytest.raises(ValueError, match="differ in length"):
        prefix_counts({**columns, "value": [1.0]}, path, title="T", guarantee="G")
    assert not path.exists()


@pytest.mark.parametrize(
    ("keys", "panels", "ranks"),
    [
        (0, 6, []),
        (1, 6, [1]),
        (3, 6, [1, 2, 3]),
        (6, 6, [1, 2, 3, 4, 5, 6]),
        (7, 6, [1, 2, 3, 4, 5, 7]),
        (16, 6, [1, 2, 3, 4, 8, 16]),
        (20, 6, [1, 2, 4, 8, 16, 20]),
        (10**6, 6, [1, 2, 4, 8, 16, 10**6]),
        (20, 1, [1]),
        (20, 2, [1, 20]),
    ],
)
def test_ranks_shown(keys: int, panels: int, ranks: list[int]) -> None:
    assert running.spread_ranks(keys, panels) == ranks


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("length", [0, 1, 4000, 4001, 1_000_000])
def test_thinning_keeps_both_ends(length: int, logarithmic: bool) -> None:
    kept = running.kept_of(length, logarithmic)
    assert len(kept) <= running.MAX_POINTS
    assert np.all(np.diff(kept) > 0)
    if length:
        assert (kept[0], kept[-1]) == (0, length - 1)


@pytest.mark.slow
def test_long_series_are_thinned(tmp_path: Path, figures: list[Figure]) -> None:
    columns, truth = releases(keys=1, steps=10_000)
    prefix_counts(columns, tmp_path / "p.png", title="T", guarantee="G", truth=truth)
    drawn = [len(line.get_xdata()) for axes in figures[0].axes for line in axes.lines]  # type: ignore[arg-type]
    assert max(drawn) == running.MAX_POINTS


@pytest.mark.slow
def test_file_is_reproducible_and_says_nothing_of_its_origin(tmp_path: Path) -> None:
    columns, _ = releases(keys=2, steps=5)
    for name in ("a.png", "b.png"):
        prefix_counts(columns, tmp_path / name, title="T", guarantee="G")
    written = (tmp_path / "a.png").read_bytes()
    assert written == (tmp_path / "b.png").read_bytes()
    assert written.startswith(b"\x89PNG\r\n\x1a\n")
    assert b"tEXt" not in written
    assert b"iTXt" not in written


@pytest.mark.exhaustive
def test_pyplot_is_never_imported() -> None:
    figures = "beam_dpcount.commands.figures"
    modules = ", ".join(f"{figures}.{name}" for name in ("series", "png"))
    check = f"import {modules}, sys; assert 'matplotlib.pyplot' not in sys.modules"
    root = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", check], check=True, cwd=root)


@pytest.mark.slow
def test_lines_look_different_and_are_listed_as_they_end(
    tmp_path: Path, figures: list[Figure]
) -> None:
    x = np.arange(1, 100)
    series = {f"slope {slope}": (x, slope * x, 0.2 * x) for slope in range(1, 13)}
    plots.lines(
        series,
        tmp_path / "l.png",
        xlabel="steps",
        ylabel="error",
        title="T",
        logx=True,
        logy=True,
        footer="F",
    )
    assert pixels(tmp_path / "l.png") == (1500, 900)
    assert {"steps", "error", "T", "F"} <= words_of(figures[0])
    (axes,) = figures[0].axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 12
    (legend,) = figures[0].subfigs[0].legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == [f"slope {slope}" for slope in range(12, 0, -1)]
    assert len(axes.collections) == 12


@pytest.mark.slow
def test_ticks_of_lines(tmp_path: Path, figures: list[Figure]) -> None:
    labels: dict[str, Any] = {"xlabel": "x", "ylabel": "y", "title": "T"}
    whole = {"a": ([16, 64, 1024], [1, 2, 4])}
    plots.lines(whole, tmp_path / "l.png", logx=True, base=2, **labels)
    plots.lines({"a": ([1, 2], [1, 1.5])}, tmp_path / "l.png", **labels)
    axes, other = (figure.axes[0] for figure in figures)
    ticks = np.log2(axes.get_xticks())
    np.testing.assert_allclose(ticks, np.rint(ticks))
    assert np.all(axes.get_yticks() == np.rint(axes.get_yticks()))
    assert np.any(other.get_yticks() != np.rint(other.get_yticks()))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(1, (525, 600)), (4, (2100, 600)), (7, (2100, 1050))])
def test_panels_of_lines(
    tmp_path: Path, figures: list[Figure], count: int, size: tuple[int, int]
) -> None:
    x = np.arange(100)
    series = {"slow": (x, x), "fast": (x, 2 * x, 3.0), plots.EXACT: (x, 3 * x)}
    sets = {f"set {i} of $x_1": dict(list(series.items())[i % 2 :]) for i in range(count)}
    panels(sets, tmp_path / "p.png", xlabel="steps", ylabel="count", title="T", footer="F")
    assert pixels(tmp_path / "p.png") == size
    assert {"steps", "count", "T", "F", *sets} <= words_of(figures[0])
    assert len(figures[0].axes) == count
    looks: dict[str, set[tuple[Any, ...]]] = {}
    for axes in figures[0].axes:
        for line in axes.lines:
            look = (line.get_color(), line.get_linestyle())
            looks.setdefault(str(line.get_label()), set()).add(look)
    assert set(looks) == set(series)
    assert all(len(look) == 1 for look in looks.values())
    assert len(set.union(*looks.values())) == 3
    (legend,) = figures[0].subfigs[0].legends
    assert [text.get_text() for text in legend.get_texts()] == list(series)


def test_panels_of_nothing(tmp_path: Path, figures: list[Figure]) -> None:
    panels({}, tmp_path / "p.png", xlabel="x", ylabel="y", title="T")
    assert {"no data", "T"} <= words_of(figures[0])


@pytest.mark.slow
def test_lines_of_little(tmp_path: Path, figures: list[Figure]) -> None:
    labels: dict[str, Any] = {"xlabel": "x", "ylabel": "y", "title": "T"}
    plots.lines({}, tmp_path / "l.png", **labels)
    assert "no data" in words_of(figures[0])
    for log in (False, True):
        plots.lines(
            {"empty": ([], []), "one": ([1], [2]), "wide": ([1, 2], [1, 1], 5.0)},
            tmp_path / "l.png",
            logx=log,
            logy=log,
            **labels,
        )
    assert all(isinstance(line, Line2D) for line in figures[1].axes[0].lines)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [(([1, 2], [1]), r"'s': x has shape \(2,\), y has shape \(1,\)"), (([1],), "1 arrays")],
)
def test_lines_of_wrong_shape(tmp_path: Path, arrays: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plots.lines({"s": arrays}, tmp_path / "l.png", xlabel="x", ylabel="y", title="T")
