"""beam-dpcount ticks, end to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpcount.commands import ticks
from beam_dpcount.commands.files.formats import Places
from tests import command_lines, pictures
from tests.command_lines import (
    EXACT,
    HEALTH_TIME,
    SECRET,
    SECRET_TEXT,
    Line,
    each_path,
    health_micros,
    stddevs,
    written,
)
from tests.real_data import real, real_rows

BUDGET = ("--epsilon", "1", "--delta", "1e-6")


succeed, run, fail = command_lines.of(ticks.main)


# Time, key, amount: the clock is [100, 130) in ticks of 10.
ROWS: list[tuple[str, str, str]] = [
    ("112", "ann", "2"),
    ("100", "bob", "1"),
    ("119.5", "ann", "0.5"),
    ("99.999", "ann", "3"),
    ("130", "ann", "3"),
    ("129.999", "ann", f"{SECRET}"),
    ("110", "bob", SECRET_TEXT),
    ("110", "zoe", "4"),
    ("109", "ann", "1"),
]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A small file, out of order, with rows outside the clock, of an unknown key, of no number."""
    path = tmp_path / "events.csv"
    path.write_text("time,who,amount\n" + "".join(",".join(row) + "\n" for row in ROWS))
    return path


def arguments(path: Path, *more: object) -> list[object]:
    return [
        *("--input", path, "--key", "who", "--timestamp", "time", "--keys", "ann", "bob", "cyd"),
        *("--tick", 10, "--start", 100, "--stop", 130),
        *("--output", path.parent / "counts.csv", *more),
    ]


def expected(ann: Sequence[float], bob: Sequence[float]) -> list[Line]:
    series = {"ann": ann, "bob": bob, "cyd": (0, 0, 0)}
    return [
        (key, step, (100 + 10 * step) * 1_000_000, float(value))
        for key, values in series.items()
        for step, value in enumerate(values, start=1)
    ]


@each_path
@pytest.mark.parametrize(
    ("flags", "ann", "bob", "said"),
    [
        (
            (),
            (1, 3, 4),
            (1, 2, 2),
            "of rows within the clock: count; up to 1,073,741,824 events a tick, 107,374,182 a s",
        ),
        (
            ("--metric", "sum(amount, 0, 4, unit=0.5)"),
            (1, 3.5, 7.5),
            (1, 1, 1),
            "what of numbers is beyond the bounds of a metric or rounded off",
        ),
        (
            ("--where", "amount=1"),
            (1, 1, 1),
            (1, 1, 1),
            "of rows where amount=1 to the letter within the clock: count",
        ),
    ],
    ids=["rows", "value", "where"],
)
def test_exact_counts(
    flags: tuple[object, ...],
    ann: tuple[float, ...],
    bob: tuple[float, ...],
    said: str,
    path: str,
    events: Path,
) -> None:
    out = succeed(*arguments(events, *EXACT, "--path", path, *flags))
    assert written(events.parent / "counts.csv") == expected(ann, bob)
    assert said in out


@each_path
def test_without_a_key_all_rows_are_one_count(path: str, events: Path) -> None:
    words = arguments(events, *EXACT, "--path", path)
    del words[words.index("--key") : words.index("--key") + 2]
    del words[words.index("--keys") : words.index("--keys") + 4]
    out = succeed(*words)
    # All of ROWS within the clock, zoe's among them.
    ends = [(step, (100 + 10 * step) * 1_000_000) for step in (1, 2, 3)]
    counts = zip(ends, (2, 6, 7), strict=True)
    expected = [("all", *end, float(count)) for end, count in counts]
    assert written(events.parent / "counts.csv") == expected
    assert "note: of rows within the clock: count; up to" in out
    assert "1 key x 3 ticks = 3 releases" in out
    assert "rows that are outside the clock or unreadable; " in out
    for absent in ("keys", "None"):  # nothing is said of what there is not
        assert absent not in out
    people = succeed(*words, "--overwrite", "--user", "who", "--per-user", 3)
    assert "at most 3 rows of a person, 3 a key, count" in people


@each_path
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--metric", "sum(amount, -2, 4, unit=0.5)", "--max-per-tick", 1),
        ("--keys", "bob", "ann", "--separator", "n", "--max-items", 1),
    ],
    ids=["rows", "clipped", "items"],
)
def test_the_truth_drawn_is_of_the_rows_counted(
    flags: tuple[object, ...], path: str, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise the two curves are one: the same clock, keys and clipping."""
    drawn = pictures.caught(monkeypatch)
    words = arguments(events, *EXACT, "--path", path, *flags)
    if "--keys" in flags:
        del words[words.index("--keys") : words.index("--keys") + 4]
        words[words.index("--keys") + 1 : words.index("--keys") + 3] = ["bob", "a"]
    out = succeed(*words, "--plot", events.parent / "c.png", "--show-truth")
    counts: dict[str, list[float]] = {}
    for key, *_, value in written(events.parent / "counts.csv"):
        counts.setdefault(key, []).append(value)
    assert [how["truth"] for how in drawn] == [counts]
    assert any(map(any, counts.values()))
    assert "the picture shows the exact counts: it is private" in out


def test_the_truth_of_selected_keys_is_that_of_their_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = pictures.caught(monkeypatch)
    rows = [(at, "often") for at in range(100, 130) for _ in range(40)]
    log = tmp_path / "log.csv"
    log.write_text("time,who\n" + "".join(f"{at},{who}\n" for at, who in [*rows, (105, "rare")]))
    words = arguments(log, "--epsilon", 5, "--delta", 1e-6, "--select-keys", "--select-every", 2)
    del words[words.index("--keys") : words.index("--keys") + 4]
    succeed(*words, "--plot", tmp_path / "c.png", "--show-truth")
    assert [step for _, step, *_ in written(tmp_path / "counts.csv")] == [2, 3]
    assert [how["truth"] for how in drawn] == [{"often": [800.0, 1200.0]}]


def test_formats_of_the_clock_and_of_files_agree(events: Path) -> None:
    """ISO times with and without an offset, a horizon, keys from a file; Parquet in and out."""
    table = {
        name: [row[column] for row in ROWS] for column, name in enumerate(("time", "who", "amount"))
    }
    source, output, keys = (events.parent / name for name in ("in.parquet", "out.parquet", "keys"))
    pq.write_table(pa.table(table), source)
    keys.write_text("ann\nbob\n\ncyd\n")
    for start in ("1970-01-01T00:01:40Z", "1970-01-01 00:01:40", "1970-01-01T01:01:40+01:00"):
        succeed(
            *("--input", source, "--key", "who", "--timestamp", "time", "--keys-file", keys),
            *("--tick", 10, "--start", start, "--horizon", 3, *EXACT, "--output", output),
        )
        assert written(output) == expected((1, 3, 4), (1, 2, 2))


def test_a_clock_without_an_offset_is_in_the_time_zone(events: Path) -> None:
    words = arguments(events, *EXACT, "--timezone", "Asia/Tokyo")
    succeed(*words, "--start", "1970-01-01T09:01:40", "--stop", "1970-01-01T09:02:10")
    assert written(events.parent / "counts.csv") == expected((1, 3, 4), (1, 2, 2))


def test_another_row_costs_more_than_a_row_more(events: Path) -> None:
    largest = []
    for relation in ("add_remove", "replace_one"):
        succeed(*arguments(events, *BUDGET, "--relation", relation))
        largest.append(max(stddevs(events.parent / "counts.csv").values()))
    assert largest[0] < largest[1]


@pytest.mark.exhaustive
def test_lengths_of_ticks_in_any_unit(events: Path) -> None:
    for tick in ("10", "10s", "1e1", "10.0s"):
        succeed(*arguments(events, *EXACT, "--tick", tick))
        assert written(events.parent / "counts.csv") == expected((1, 3, 4), (1, 2, 2))


def test_the_size_and_the_notes_come_before_the_run(events: Path) -> None:
    words = arguments(events, *EXACT)
    weak, note, counted, others, size, *_ = succeed(*words).splitlines()
    assert weak.startswith("warning: weak budget: ")
    assert (
        note
        == "warning: keys are not checked against the data (--check does): check their spelling"
    )
    assert counted.startswith("note: of rows within the clock: count; up to ")
    times = "rows whose times are neither seconds since 1970 nor ISO 8601"
    assert others == f"note: {times} count nothing (--check says how many)"
    assert size == "3 keys x 3 ticks = 9 releases"
    for several in ("ann,ben", "ann;ben", "ann, ben"):
        meant = succeed(*words, "--keys", several).splitlines()[1]
        assert meant == f"{note} ({several!r} is one text: several are given with spaces between)"
    for single in ("ann", "ann.ben", ",", "ann,"):
        assert succeed(*words, "--keys", single).splitlines()[1] == note
    one = succeed(*words, "--keys", "ann", "--tick", "1h", "--where", "who=ann").splitlines()
    assert one[1].startswith("warning: texts that metrics and --where name are not checked")
    assert one[2] == note
    assert one[5] == "1 key x 1 tick = 1 release"
    assert "(1 key, 1 tick)" in one[6]


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        (("--zone", "Europe/Paris"), True),
        (("--zone", "Europe/Paris", "--timezone", "Etc/UTC"), False),
        (("--zone", "Europe/Paris", "--timezone", "Europe/Paris"), False),
        (("--zone", "Europe/Paris", "--timestamp-format", "unix"), False),
        ((), False),
    ],
    ids=str,
)
def test_days_of_a_zone_do_not_make_rows_times_local(
    more: Sequence[object], warned: bool, events: Path
) -> None:
    out = succeed(*arguments(events), *BUDGET, *more, "--dry-run")
    text = "warning: --zone is Europe/Paris, and rows' times without an offset are read as UTC"
    assert (text in out) == warned


@pytest.mark.parametrize(
    ("start", "noted"),
    [("100", False), ("1970-01-01T00:01:40Z", False), ("1970-01-01T00:01:40", True)],
)
def test_a_note_on_the_time_zone(start: str, noted: bool, events: Path) -> None:
    out = succeed(*arguments(events, *EXACT, "--start", start))
    note = "note: times without an offset are taken as UTC (--timezone)"
    assert (note in out.splitlines()) == noted


def test_sums_of_a_tick_are_clipped(events: Path) -> None:
    events.write_text("time,who\n" + "101,ann\n" * 5 + "111,ann\n")
    succeed(*arguments(events, *EXACT, "--max-per-tick", 3))
    assert written(events.parent / "counts.csv") == expected((3, 4, 4), (0, 0, 0))


def test_keys_and_times_may_be_counted_as_both_are_protected(events: Path) -> None:
    succeed(*arguments(events, *EXACT, "--where", "who=ann"))
    assert written(events.parent / "counts.csv") == expected((1, 3, 4), (0, 0, 0))
    times = ("--metric", "sum(time, 0, 120, unit=1)")
    succeed(*arguments(events, *EXACT, *times, "--path", "streaming"))
    assert written(events.parent / "counts.csv") == expected((109, 341, 461), (100, 210, 210))


def test_options_reach_the_transform(events: Path) -> None:
    words = arguments(events, *EXACT, "--late", "drop", "--max-per-tick", 7, "--mechanism", "blt")
    options = ticks.Ticks.parser().parse_args([str(word) for word in words])
    described = ticks.Ticks.of(options).transform(Places([]))._parts[0].engine.display_data()
    assert (described["late"], described["max_per_tick"]) == ("drop", "7")
    assert options.mechanism == "BLT"


@each_path
def test_cells_of_several_keys(path: str, events: Path) -> None:
    """Of more than B the first in the order of the keys, each of them once."""
    rows = ["101,bob;ann", "112,cyd;bob;ann", "113,ann;ann;zoe", "121,", "122,bob"]
    events.write_text("\n".join(["time,who", *rows]))
    several = ("--separator", ";", "--max-items", 2)
    out = succeed(*arguments(events, *EXACT, "--path", path, *several))
    assert written(events.parent / "counts.csv") == expected((1, 3, 3), (1, 2, 3))
    assert ", in at most 2 keys" in out
    succeed(*arguments(events, *EXACT, "--path", path))
    assert written(events.parent / "counts.csv") == expected((0, 0, 0), (0, 0, 1))


@each_path
def test_an_empty_cell_is_a_key(path: str, events: Path) -> None:
    events.write_text("time,who\n101,\n112,ann\n113,\n")
    succeed(*arguments(events, *EXACT, "--path", path, "--keys", "", "ann"))
    assert [(key, value) for key, *_, value in written(events.parent / "counts.csv")] == [
        *(("", 1), ("", 2), ("", 2)),
        *(("ann", 0), ("ann", 1), ("ann", 1)),
    ]
    succeed(*arguments(events, *EXACT, "--path", path))
    assert written(events.parent / "counts.csv") == expected((0, 1, 1), (0, 0, 0))


def test_what_is_drawn(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = pictures.caught(monkeypatch)
    plot = ("--plot", events.parent / "p.png", "--timezone", "Asia/Tokyo")
    succeed(*arguments(events, *EXACT, *plot))
    amount = ("--metric", "sum(amount, 0, 4)", "--plot-keys", "cyd")
    succeed(*arguments(events, *EXACT, *plot, *amount, "--tick", "1m"))
    rows, amounts = drawn
    assert rows["title"] == "Private count every 10 s by who"
    assert (rows["of"], str(rows["zone"])) == ("count", "Asia/Tokyo")
    assert (rows["order"], rows["only"]) == (["ann", "bob", "cyd"], None)
    assert amounts["only"] == ["cyd"]
    assert amounts["title"] == "Private sum_amount every minute by who"


# Real data


Moment = Callable[[str], int]


@each_path
@pytest.mark.parametrize(
    ("file", "key", "time", "moment", "clock"),
    [
        pytest.param(
            "bgl_2k.csv",
            "Level",
            "Timestamp",
            lambda text: int(text) * 1_000_000,
            ("--tick", 86_400, "--start", "2005-06-03", "--stop", "2006-01-05"),
            marks=pytest.mark.exhaustive,
        ),
        (
            "healthapp_2k.csv",
            "EventId",
            "Time",
            health_micros,
            ("--tick", 900, "--start", "2017-12-23T22:00", "--horizon", 14, *HEALTH_TIME),
        ),
    ],
    ids=["bgl", "health"],
)
def test_real_data(
    file: str,
    key: str,
    time: str,
    moment: Moment,
    clock: tuple[object, ...],
    path: str,
    tmp_path: Path,
) -> None:
    source, output, keys = real(file), tmp_path / "counts.csv", tmp_path / "keys.txt"
    facts = [(row[key], moment(row[time])) for row in real_rows(file)]
    keys.write_text("\n".join(sorted({name for name, _ in facts})))
    ended = run(
        *("--input", source, "--key", key, "--timestamp", time, "--keys-file", keys, *clock),
        *(*EXACT, "--path", path, "--output", output),
    )
    assert ended.status == 0
    found = written(output)
    ends = {step: end for _, step, end, _ in found}
    assert sum(value for _, step, _, value in found if step == max(ends)) == 2000
    counts: Counter[Any] = Counter()
    for name, micros in facts:
        counts.update(
            (name, step) for step, end in ends.items() if end is not None and micros < end
        )
    assert found == [(name, step, ends[step], counts[name, step]) for name, step, *_ in found]


# Bad input
