"""--select-keys of beam-dpcount ticks, end to end: which keys are written, and what is said."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

from beam_dpcount.commands import options as opt
from beam_dpcount.commands import ticks
from beam_dpcount.commands.figures import counts as plots
from beam_dpcount.commands.figures import running
from beam_dpcount.commands.figures.pictures import Running
from beam_dpcount.commands.files import formats, tables
from tests import command_lines, pictures
from tests.command_lines import EXACT, PNG, SECRET_TEXT, each_path, micros, stddevs
from tests.orders import in_a_process
from tests.scripted import ScriptedEntropy
from tests.side_doors import listening

BUDGET = ("--epsilon", "1", "--delta", "1e-6")
# Without noise a key of two rows is shown: it cannot be one row's.
NO_NOISE = (*EXACT, "--select-delta", "1e-6")


succeed, run, fail = command_lines.of(ticks.main)


# Time, key, person, number: the clock is [100, 130) in ticks of 10.
ROWS = [
    (112, "zoe", "p1", "2"),
    (101, "bob", "p1", "1"),
    (105, "zoe", "p2", "1"),
    (102, "bob", "p2", "1"),
    (113, "bob", "p3", "0"),
    (99, SECRET_TEXT, "p1", "1"),
    (114, SECRET_TEXT, "p4", "1"),
    (130, SECRET_TEXT, "p4", "1"),
    (121, "ann", "p1", "1"),
    (122, "ann", "p1", "1"),
    (123, "ann", "p2", "1"),
]


def write(path: Path, rows: Iterable[Sequence[object]]) -> None:
    path.write_text("\n".join(["time,who,person,n", *(",".join(map(str, row)) for row in rows)]))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    write(path, ROWS)
    return path


def arguments(log: Path, *more: object) -> list[object]:
    return [
        *("--input", log, "--key", "who", "--timestamp", "time", "--select-keys", "--tick", 10),
        *("--start", 100, "--horizon", 3, "--output", log.parent / "out.csv", *more),
    ]


def lines(log: Path) -> list[tuple[str, int, float]]:
    """Key, step and value of the output as it was written, not sorted."""
    header, *rows = (log.parent / "out.csv").read_text().splitlines()
    assert header.startswith("key,step,start,timestamp,")
    cells = [row.split(",") for row in rows]
    assert [micros(time) for _, _, _, time, *_ in cells] == [
        (100 + 10 * int(step)) * 10**6 for _, step, *_ in cells
    ]
    return [(key, int(step), float(value)) for key, step, _, _, value, *_ in cells]


# Exact counts


Shown = dict[str, tuple[int, list[float]]]  # by key: the first tick, and the values from there on
PEOPLE = ("--user", "person", "--per-user", 9, "--per-key", 1)
PLAIN: Shown = {"ann": (3, [3]), "bob": (1, [2, 3, 3]), "zoe": (2, [2, 2])}
FROM_TWO: Shown = {"ann": (3, [3]), "bob": (2, [3, 3])}
OF_PEOPLE: Shown = {"ann": (3, [2]), "bob": (1, [2, 3, 3]), "zoe": (2, [2, 2])}


@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ((), PLAIN),
        (("--path", "streaming"), PLAIN),
        (("--at-least", 2), FROM_TWO),  # from three rows on
        (("--at-least", 2, "--path", "streaming"), FROM_TWO),
        (("--at-least", 3), {}),
        (("--select-every", 2), {"bob": (2, [3, 3]), "zoe": (2, [2, 2])}),
        (("--where", "n=1"), {"ann": (3, [3]), "bob": (1, [2, 2, 2])}),
        (
            ("--metric", "sum(n, 0, 2, unit=0.5)"),
            {"ann": (3, [3]), "bob": (1, [2, 2, 2]), "zoe": (2, [3, 3])},
        ),
        # Of one person a row a key, or two, which alone show no key.
        (PEOPLE, OF_PEOPLE),
        ((*PEOPLE, "--path", "streaming"), OF_PEOPLE),
        (("--user", "person", "--per-user", 2, "--per-key", 2), {"bob": (2, [3, 3])}),
    ],
)
def test_exact_counts(more: tuple[object, ...], shown: Shown, log: Path) -> None:
    """In the order of keys and ticks, whatever that of the rows; a key from its tick on."""
    if "--user" in more:  # streaming, rows of a person are taken as they come
        write(log, sorted(ROWS))
    succeed(*arguments(log, *NO_NOISE, *more))
    assert lines(log) == [
        (key, first + place, value)
        for key, (first, values) in shown.items()
        for place, value in enumerate(values)
    ]


def test_cells_of_several_keys(log: Path) -> None:
    """Of more than B the first of the cell, each of them once; more of them need more noise."""
    rows = [(101, "b;a;b;c"), (102, "a;c"), (103, "c"), (112, "b;b"), (113, "")]
    write(log, [(*row, "p1", 1) for row in rows])
    several = ("--separator", ";", "--max-items", 2)
    out = succeed(*arguments(log, *NO_NOISE, *several))
    assert lines(log) == [
        *(("a", step, 2) for step in (1, 2, 3)),
        *(("b", step, 2) for step in (2, 3)),
        *(("c", step, 2) for step in (1, 2, 3)),
    ]
    assert "keys of a cell beyond its first 2 (--max-items)" in out
    assert "a key is the text of who between ';' to the letter" in out


# What leaves


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_how_many_keys_were_written(suffix: str, tmp_path: Path) -> None:
    """Of any text; and none."""
    keys = ["", "NA", "a\nb", 'c,"d', "e\r", "é", "07", "7", *(f"k{i}" for i in range(3000))]
    path, schema = tmp_path / f"out{suffix}", formats.RELEASES.schema
    for some in (keys, []):
        rows = [(key, step, None, 1.0, 1.0) for key in some for step in range(40)]
        if suffix == ".csv":
            texts = map(tables.csv_line, [[name for name, _ in schema], *rows])
            path.write_text("".join(f"{line}\n" for line in texts), encoding="utf-8", newline="")
        else:
            pq.write_table(pa.table({"key": [key for key, *_ in rows]}), path, row_group_size=999)
        assert tables.Output(str(path), formats.RELEASES).written_keys() == len(some)


def steady(text: str) -> str:
    """Without what is simulated anew in every run, and how far a slow machine has come."""
    text = re.sub(r"(?m)^ +\d+: .*\n", "", text)
    return re.sub(r"(?m)^[\d,]+ releases in .*\n", "", text)


@each_path
def test_nothing_tells_of_hidden_keys(
    path: str, log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neighbours without them: the same words, log lines, files, and bytes in these."""
    seen = []
    for rows in (ROWS, [row for row in ROWS if row[1] != SECRET_TEXT]):
        write(log, rows)
        with listening() as records:
            words = arguments(log, *NO_NOISE, "--path", path, "--overwrite")
            ticks.main([str(word) for word in words])
        said = capfd.readouterr()
        messages = [record.getMessage() for record in records]
        assert not [text for text in (*said, *messages) if SECRET_TEXT in text]
        ours = [text for text, r in zip(messages, records, strict=True) if "dpcount" in r.name]
        output = (log.parent / "out.csv").read_bytes()
        seen.append(
            (steady(said.out), steady(said.err), ours, output, sorted(log.parent.iterdir()))
        )
    assert seen[0] == seen[1]
    assert b"ann,3,1970-01-01T00:02:00Z,1970-01-01T00:02:10Z,3.0,0.0,3.0,3.0\n" in seen[0][3]


# Keys of 400 rows, whose noise is at most some hundreds; one row of c more is a neighbour.
SCRIPTED = ("--epsilon", "3", "--delta", "1e-5", "--mechanism", "SmoothBinary")


def files_of_neighbours(path: str) -> list[str]:
    """What is written of two neighbours, under noise that depends on the key alone."""
    made = []
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(opt, "entropy_of", lambda *_: ScriptedEntropy(spread=3))
        log = Path(name, "log.csv")
        rows = [(100 + i % 30, f"{'dbea'[i % 4]}", "p", 1) for i in range(1600)]
        for first in ([], [(100, "c", "p", 1)]):
            more = [(101 + i % 29, "c", "p", 1) for i in range(400)]
            write(log, [*first, *rows, *more])
            succeed(*arguments(log, *SCRIPTED, "--path", path))
            made.append((log.parent / "out.csv").read_text())
    return made


@pytest.mark.long
@pytest.mark.parametrize(
    "path", ["bounded", pytest.param("streaming", marks=pytest.mark.exhaustive)]
)
def test_files_are_sorted_and_differ_in_one_key(path: str) -> None:
    """One row less changes nothing of other keys, to the byte; nor does another hash seed."""
    without, first = files_of_neighbours(path)
    cells = [line.split(",")[:2] for line in without.splitlines()[1:]]
    assert cells == [[key, step] for key in "abcde" for step in "123"]
    assert without != first
    others = [[line for line in text.splitlines() if line[0] != "c"] for text in (without, first)]
    assert others[0] == others[1]
    assert len(others[0]) == 1 + 4 * 3
    again = in_a_process(1 + (sys.flags.hash_randomization == 0), "-m", __name__, path)
    assert json.loads(again) == [without, first]


@pytest.mark.exhaustive
def test_replayable_noise(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows in another order give the same file; other options, other noise."""
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    rows = [(100 + i % 30, "bad"[i % 3], "p", 1) for i in range(600)]
    secret = (*BUDGET, "--secret-env", "COUNTING_SECRET")
    found = []
    for order, more in ((1, ()), (-1, ()), (1, ("--at-least", 2)), (1, ("--run-id", "b"))):
        write(log, rows[::order])
        out = succeed(*arguments(log, *secret, *more))
        found.append((log.parent / "out.csv").read_bytes())
        assert "for this secret and --run-id" in out
    assert found[0] == found[1]
    assert len(set(found)) == 3


# What is said


def test_what_is_said_before_the_run_and_after_it(log: Path) -> None:
    out = succeed(*arguments(log, *BUDGET, "--at-least", 5, "--select-every", 3)).splitlines()
    before = out[: next(i for i, line in enumerate(out) if line.startswith("private counts: "))]
    for part in (
        "note: of rows within the clock: count; up to",
        "note: a key is shown at the first tick at which its private count reaches 2",
        "note: keys that count less than 5 (--at-least) are left out",
        "note: keys are tested at one tick in 3 only",
        "grows by so much at each tick is shown (by simulation, without data)",
        "    100 a tick: after 1 tick (median), at a count of 200; its first release is off by ",
        "note: a key is the text of who to the letter",
        "3 ticks; how many keys are shown depends on their counts",
    ):
        assert [line for line in before if line.startswith(part) or part in line], part
    assert "not checked" not in "".join(before)
    where = succeed(*arguments(log, *NO_NOISE, "--where", "n=1"))
    assert (
        "warning: texts that metrics and --where name are not checked against the data (--check "
        "does): check their spelling" in where
    )
    assert "(2 keys shown, 3 ticks)" in where


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (BUDGET, "satisfy epsilon = 1, delta = 1e-06 (all of delta is for keys) for neigh"),
        (
            (*BUDGET, "--mechanism", "SmoothBinary"),
            "satisfy epsilon = 1, delta = 1e-06 (5e-07 of delta is for keys) for neigh",
        ),
        (
            (*BUDGET, "--select-delta", "1e-7"),
            "satisfy epsilon = 1, delta = 1e-06 (1e-07 of delta is for keys) for neigh",
        ),
        (
            ("--rho", "0.1", "--select-delta", "1e-7"),
            "satisfy rho = 0.1 (zCDP), and a probability of 1e-07 for keys, for neigh",
        ),
        (
            ("--epsilon", "1", "--select-delta", "1e-7"),
            "satisfy epsilon = 1 (pure), and a probability of 1e-07 for keys, for neigh",
        ),
    ],
    ids=["laplace", "half", "given", "rho", "pure"],
)
def test_the_guarantee_is_of_the_whole_budget(
    budget: tuple[str, ...], said: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = pictures.caught(monkeypatch)
    out = succeed(*arguments(log, *budget, "--plot", log.parent / "p.png"))
    (how,) = drawn
    for text in (out, how["guarantee"]):
        assert (
            f"Guarantee: all releases of all keys, and which keys have any, together {said}" in text
        )
        assert "but not which keys there are. It is for one row, not for all rows of a p" in text
        assert "of a key named beforehand (shown or not)" in text
        assert "its first releases are too high on average, and no standard deviation says" in text
        assert (
            "outside the clock or unreadable; keys that are not shown, which sums over those tha"
            in text
        )
        assert "of other keys" not in text
    assert "the largest error of all 3 releases of such a key below" in out
    assert how["title"] == "Private count every 10 s by who"
    assert how["selected"]
    assert how["order"] is None


@pytest.mark.exhaustive
def test_errors_do_not_depend_on_what_is_shown(log: Path) -> None:
    found = set()
    for many in (0, 400):
        write(log, [(101, f"k{i % 2}", "p", 1) for i in range(many)])
        out = succeed(*arguments(log, *BUDGET))
        found.add(next(line for line in out.splitlines() if line.startswith("Error to expect")))
    assert len(found) == 1
    largest = max(stddevs(log.parent / "out.csv").values())
    assert f"the standard deviation at most {largest:.3g}; " in found.pop()


def test_people(log: Path) -> None:
    """Thresholds, noise and sentences are those of all rows of a person."""
    firsts = []
    for more in ((), ("--user", "person", "--per-user", 4, "--per-key", 2)):
        out = succeed(*arguments(log, *BUDGET, *more))
        (first,) = re.findall(r"its private count reaches ([\d.]+) ", out)
        firsts.append(float(first))
    assert firsts[1] > 1.5 * firsts[0]
    assert "It is for one person with all rows, where at most 4 rows of a person, 2 a key" in out
    assert "further rows of a person, and rows without one (--user)" in out
    assert "Error to expect of a key named beforehand (shown or not) (" in out


# Pictures


def columns(**firsts: int) -> dict[str, list[Any]]:
    """Releases of keys from these steps on, of four."""
    rows = [(key, step) for key, first in firsts.items() for step in range(first, 5)]
    return {
        "key": [key for key, _ in rows],
        "step": [step for _, step in rows],
        "value": [10.0 * step for _, step in rows],
        "stddev": [1.0 for _ in rows],
        "timestamp": [step * 10**6 for _, step in rows],
    }


@pytest.mark.parametrize(
    ("only", "keys", "said"),
    [
        (None, ["a", "b"], "Of 3 keys that are shown the first 2 by name."),
        (["c", "x", "a"], ["c", "a"], "Keys as asked for, those of them that are shown."),
    ],
)
def test_which_keys_are_drawn(only: Any, keys: list[str], said: str) -> None:
    """By name, never by when they were shown; each from there on."""
    panels = running.panels_of(columns(c=1, a=4, b=2))
    drawn, how = running.choice(panels, None, only, 2, selected=True)
    assert [panel.key for panel in drawn] == keys
    assert [int(panel.step[0]) for panel in drawn] == [{"a": 4, "b": 2, "c": 1}[k] for k in keys]
    assert how == said


def test_all_keys_are_drawn_without_a_word() -> None:
    panels = running.panels_of(columns(b=1, a=4))
    drawn, how = running.choice(panels, None, None, 2, selected=True)
    assert ([panel.key for panel in drawn], how) == (["a", "b"], "")


def test_a_key_that_is_shown_late_does_not_seem_to_begin_at_the_axis() -> None:
    drawn = Running("T", **pictures.LABELS, columns=columns(a=4))
    counts = running.counts_of(drawn, 1)
    axes = Figure().add_subplot()
    plots._draw_count(axes, counts, counts.panels[0])
    low, high = axes.get_ylim()
    assert low <= 0 < 40 < high


def test_a_picture(log: Path) -> None:
    """Of keys asked for that are hidden it says what it says of those that do not exist."""
    picture = log.parent / "p.png"
    asked = ("--plot", picture, "--plot-keys", "ann", "zoe", "p1")
    out = succeed(*arguments(log, *NO_NOISE, *asked, "--at-least", 2))
    assert picture.read_bytes().startswith(PNG)
    assert [line for line in out.splitlines() if "--plot-keys" in line] == [
        f"warning: --plot-keys: {key!r} has no releases, and is not drawn" for key in ("zoe", "p1")
    ]


# Bad input


if __name__ == "__main__":
    print(json.dumps(files_of_neighbours(sys.argv[1])))
