"""The contract of commands that count: every check over each of `KINDS`, on one log.

There is no skip list: a check holds for all kinds, or for those after each element, of keys that
are optional, and so on, as `Kind` says. A new command is covered by an entry in `each_command`.
What a command refuses is in `test_command_refusals.py`, what it counts in a file of its own.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_dpcount as dp
from beam_dpcount.budget.account_file import create as create_account
from beam_dpcount.commands import COMMANDS, eventlog, manifest
from beam_dpcount.commands import runner as running
from beam_dpcount.commands.looks import HEADING
from tests import command_lines, pictures
from tests.command_lines import (
    BUDGET,
    BUNDLES,
    EXACT,
    GRPC,
    NOT_NOISE,
    PNG,
    SECRET_TEXT,
    Ended,
    command,
    fail,
    succeed,
    without,
)
from tests.each_command import KEYS, KINDS, MAIN, MODULE, MORE, TASK, Kind, log, row, rows

# One of each command, and of each way to write.
MAIN_KINDS = [name for name in KINDS if name in MORE]
ELEMENTS = [name for name in MAIN_KINDS if not KINDS[name].at_ticks]
every_kind = pytest.mark.parametrize("kind", KINDS)
each = pytest.mark.parametrize("kind", MAIN_KINDS)
each_element = pytest.mark.parametrize("kind", ELEMENTS)
Rows = list[tuple[Any, ...]]


def line(kind: str, place: Path, *more: object, source: Path | None = None) -> list[object]:
    """A command line that works, but for its budget."""
    output = () if "--output" in more else ("--output", place / "out.csv")
    return ["--input", source or place / "events.csv", *KINDS[kind].words, *output, *more]


def run(kind: str, words: Sequence[object], **how: Any) -> Ended:
    return command(*words, main=MAIN[KINDS[kind].command], **how)


def counted(kind: str, place: Path, *more: object, source: Path | None = None) -> str:
    """What is said of a run that must succeed."""
    words = line(kind, place, *more, source=source)
    return succeed(*words, main=MAIN[KINDS[kind].command])


def exactly(kind: str) -> tuple[object, ...]:
    """A budget without noise."""
    return (*EXACT, *(("--select-delta", "1e-6") if KINDS[kind].selects else ()))


def plain(cell: Any) -> Any:
    if cell in ("", None):
        return None
    try:
        return float(cell)
    except ValueError:
        return cell


def read(path: Path, columns: Sequence[str] | None = None) -> Rows:
    """The lines of an output of any format, sorted; all but keys are numbers, if they can be."""
    packed = path.read_bytes()
    text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8", "replace")
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        records = pq.read_table(path).to_pylist()
        assert columns is None or pq.read_schema(path).names == [*columns]
    elif name.endswith(".jsonl"):
        records = [json.loads(one) for one in text.splitlines()]
    else:
        head, *cells = csv.reader(io.StringIO(text, newline=""), strict=True)
        assert columns is None or head == [*columns]
        records = [dict(zip(head, one, strict=True)) for one in cells]
    assert columns is None or all([*one] == [*columns] for one in records)
    return sorted((str(key), *map(plain, rest)) for key, *rest in (one.values() for one in records))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    log(tmp_path / "events.csv", rows())
    return tmp_path


def files(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()}


def test_each_command_is_in_the_table() -> None:
    assert {MODULE[kind.command].__name__.rpartition(".")[2] for kind in KINDS.values()} == {
        *COMMANDS
    } - {"run", "choose", "errors", "bounds", "account", "demo"}


# Help


@pytest.mark.long
@each
def test_help_says_all_and_its_example_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = TASK[KINDS[kind].command].parser()
    assert all(action.help for action in parser._actions)
    said = " ".join(parser.format_help(everything=True).split())
    of_all = "all releases of all keys together" if KINDS[kind].at_ticks else "all releases of one"
    assert f"privacy budget, for {of_all}" in said
    assert ("post-processing of the private counts" in said) == (kind == "sequences")
    monkeypatch.chdir(tmp_path)
    Path("out/demo").mkdir(parents=True)
    eventlog.write("out/demo/events.csv", events=60, keys=2)
    Path("friends.csv").write_text("from,to\n1,2\n2,3\n")
    (words,) = re.findall(r"beam-dpcount \w+ (.*)", parser.epilog.replace("\\\n", ""))
    assert "private " in succeed(*words.split(), main=MAIN[KINDS[kind].command])


# Formats, order and keys


def write_forms(place: Path) -> dict[str, Path]:
    """The log in every format that is read, and the output that is then written."""
    text = (place / "events.csv").read_text(encoding="utf-8")
    records = list(csv.DictReader(text.splitlines()))
    lines = "".join(f"{json.dumps(one)}\n" for one in records).encode()
    half = len(text.splitlines()) // 2
    head, *some = text.splitlines(keepends=True)
    (place / "folder").mkdir()
    forms = {
        "out.csv": ("in.csv", b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()),
        "out.csv.gz": ("in.csv.gz", gzip.compress(text.encode())),
        "out.jsonl": ("in.jsonl", lines),
        "out.jsonl.gz": ("in.ndjson.gz", gzip.compress(lines)),
    }
    for name, content in forms.values():
        (place / name).write_bytes(content)
    columns = {name: [one[name] for one in records] for name in records[0]}
    for name in ("time", "u", "v"):
        columns[name] = [*map(int, columns[name])]
    pq.write_table(pa.table(columns), place / "in.parquet")
    (place / "folder" / "1.csv").write_text("".join([head, *some[:half]]), encoding="utf-8")
    (place / "folder" / "2.csv").write_text("".join([head, *some[half:]]), encoding="utf-8")
    named = {output: place / name for output, (name, _) in forms.items()}
    return {**named, "out.parquet": place / "in.parquet", "out.CSV": place / "folder"}


@pytest.mark.long
@pytest.mark.parametrize("kind", [*MAIN_KINDS, "ticks of people"])
def test_all_formats_hold_the_same(kind: str, place: Path) -> None:
    columns = KINDS[kind].columns
    counted(kind, place, *exactly(kind))
    expected = read(place / "out.csv", columns)
    assert expected
    assert {type(cell) for _, *cells in expected for cell in cells} <= {float, str, type(None)}
    for name, source in write_forms(place).items():
        output = place / "of" / name
        output.parent.mkdir(exist_ok=True)
        out = counted(kind, place, *exactly(kind), "--output", output, source=source)
        assert f": {output}" in out
        assert read(output, columns) == expected, name


@each
def test_rows_are_taken_by_time_bounded_and_as_they_come_streaming(kind: str, place: Path) -> None:
    counted(kind, place, *exactly(kind), "--timestamp", "time", "--path", "streaming")
    expected = read(place / "out.csv")
    log(place / "events.csv", rows()[::-1])
    for more in ((), ("--multiline",)):
        counted(kind, place, *exactly(kind), "--timestamp", "time", "--path", "bounded", *more)
        assert read(place / "out.csv") == expected


@pytest.mark.parametrize("kind", [*ELEMENTS, "forest"])
@command_lines.each_path
def test_without_a_time_rows_go_by_the_order_of_files(path: str, kind: str, place: Path) -> None:
    given = rows()[::-1]
    numbered = [f"{100 + i},{one.split(',', 1)[1]}" for i, one in enumerate(given)]
    log(place / "events.csv", numbered)
    counted(kind, place, *exactly(kind), "--timestamp", "time")
    expected = [(*one[:2], None, *one[3:]) for one in read(place / "out.csv")]
    files = log(place / "day9.csv", given[:20]), log(place / "day10.csv", given[20:])
    words = without(line(kind, place), "--input", "--timestamp")
    succeed("--input", *files, *words, *exactly(kind), "--path", path, main=main_of(kind))
    assert read(place / "out.csv") == expected


def main_of(kind: str) -> Callable[..., None]:
    return MAIN[KINDS[kind].command]


@pytest.mark.parametrize("kind", ["ticks", "histogram", "sequences", "graph", "forest", "cuts"])
def test_without_a_key_all_rows_are_of_one(kind: str, place: Path) -> None:
    keys = ("--keys", "all") if kind == "ticks" else ()
    words = without(line(kind, place), "--key", "--keys")
    out = succeed(*words, *exactly(kind), main=main_of(kind))
    found = read(place / "out.csv", KINDS[kind].columns)
    assert "public: the keys" not in out
    log(place / "events.csv", [re.sub('"[^"]*"', "all", one) for one in rows()])
    out = succeed(*words, "--key", "who", *keys, *exactly(kind), main=main_of(kind))
    assert read(place / "out.csv") == found
    assert "public: the keys" in out


@pytest.mark.long
@each
def test_a_header_alone(kind: str, place: Path) -> None:
    log(place / "events.csv", [])
    pictures = ("--plot", place / "out.png", "--report", place / "r.html")
    out = counted(kind, place, *exactly(kind), *pictures)
    how = KINDS[kind]
    value = how.columns.index(how.private[0])
    zeros = [one[value] for one in read(place / "out.csv", how.columns)]
    assert zeros == [0] * (36 if how.at_ticks and not how.selects else 0)
    assert ("no key was shown: the private count of none was high enough" in out) == (
        kind == "select"
    )
    about = json.loads((place / "out.csv.manifest.json").read_text())
    assert about["budget"] == {"rho": 1e12} | ({"delta_for_keys": 1e-6} if kind == "select" else {})
    assert (place / "out.png").read_bytes().startswith(PNG)
    assert f"picture: {place / 'out.png'}" in out


@each_element
@pytest.mark.parametrize(
    "runner",
    [(), BUNDLES, GRPC],
    ids=["fn", "bundles", "grpc"],
)
@command_lines.each_path
def test_past_the_horizon(path: str, runner: tuple[str, ...], kind: str, place: Path) -> None:
    words = line(kind, place, *exactly(kind), "--key", "who", "--path", path, "--every", 1)
    words = words if KINDS[kind].command in ("sequences", "graph", "cuts") else words[:-2]
    succeed(*words, main=main_of(kind))
    expected = [one for one in read(place / "out.csv") if one[1] <= 3]
    out = succeed(*words, "--horizon", 3, *runner, main=main_of(kind))
    assert read(place / "out.csv") == expected
    late = sum(n - 3 for n in Tally(one.split('"')[1] for one in rows()).values())
    assert f"\nwarning: {late} rows came after row 3 of their key" in f"\n{out}"


# What is written beside the output, and what is there already


@pytest.mark.long
@each
def test_what_is_there_is_not_replaced_unasked(kind: str, place: Path) -> None:
    names = ["out.csv", "out.csv.manifest.json", "out.png", "out.html"]
    more = ["--plot", place / "out.png", "--report", place / "out.html"]
    if KINDS[kind].command == "count":
        names, more = [*names, "rejected.csv"], [*more, "--rejected", place / "rejected.csv"]
    for name in names:
        (place / name).write_text("precious")
        before = files(place)
        ended = run(kind, line(kind, place, *BUDGET, *more), overwrite=False)
        assert (ended.status, ended.out) == (2, "")
        said = f"error: {str(place / name)!r} is there already: give --overwrite to replace it, or"
        assert ended.err.startswith(said)
        assert files(place) == before
        dry = run(kind, line(kind, place, *BUDGET, "--dry-run", *more), overwrite=False)
        assert f"note: {str(place / name)!r} is there already: give --overwrite" in dry.out
        asked = run(kind, line(kind, place, *BUDGET, "--dry-run", "--overwrite", *more))
        assert "is there already" not in asked.out
        assert files(place) == before
        (place / name).unlink()
    for name in names:
        (place / name).write_text("precious")
    assert run(kind, line(kind, place, *BUDGET, *more, "--overwrite"), overwrite=False).status == 0
    assert {*files(place)} == {"events.csv", *names}
    assert b"precious" not in files(place).values()


def test_a_manifest_is_not_an_input(place: Path) -> None:
    name = Path(manifest.path_of(str(place / "out.csv")))
    name.write_text((place / "events.csv").read_text())
    words = line("count", place, "--format", "csv", *BUDGET, source=name)
    assert "is an input as well" in fail(*words, started=False)


def test_a_manifest_that_cannot_be_written_says_that_the_counts_are(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = running.finished

    def then_full(*given: Any) -> Any:
        result = finished(*given)
        Path(manifest.path_of(str(place / "out.csv"))).mkdir()
        return result

    monkeypatch.setattr(running, "finished", then_full)
    assert "the counts are complete: " in fail(*line("count", place, *BUDGET))
    assert (place / "out.csv").exists()


@each
def test_check_looks_and_does_nothing(kind: str, place: Path) -> None:
    create_account(str(place / "shop.account"), dp.ApproxDP(3.0, 1e-5), None)
    (place / "out.csv").write_text("precious")
    before = files(place)
    words = line(kind, place, *BUDGET, "--check", "--account", place / "shop.account")
    ended = run(kind, words, overwrite=False)
    assert ended.err == ""
    assert ended.out.startswith(f"{HEADING}\n\n")
    assert ended.status == ("LOOKS WRONG" in ended.out) != ("nothing looks wrong" in ended.out)
    assert files(place) == before
    assert kind != "histogram" or ended.out.endswith("nothing looks wrong\n")
    assert "--key" not in words or "58 rows in 6 keys" in ended.out
    assert ("29 rows with letter=a" in ended.out) == (kind == "count")


# Neighbours


def others(kind: Kind) -> list[str]:
    """As many rows of the same keys, times and people, which say something else; at a clock, none.

    All that is protected is told apart: no cell of it may show.
    """
    if kind.at_ticks:
        return []
    counted = {"graph": (3, 4), "cuts": (3, 4)}.get(kind.command, (2,))
    counted = (3,) if "--value" in kind.words else counted
    cells = [one.split(",") for one in rows()]
    return [",".join(SECRET_TEXT if i in counted else x for i, x in enumerate(c)) for c in cells]


def seen(kind: str, directory: Path, given: list[str], *more: object) -> dict[str, Any]:
    """All that a run leaves and says, but for private values, the directory and the time."""
    directory.mkdir()
    log(directory / "events.csv", given)
    output = directory / "out.parquet"
    said = counted(kind, directory, *more, "--output", output)
    about = json.loads(Path(f"{output}.manifest.json").read_text())
    assert json.loads(pq.read_schema(output).metadata[b"beam_dpcount"]) == about
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", about.pop("time"))
    assert SECRET_TEXT not in said + str(about)
    # What a simulation says differs from run to run; the words of the last releases are shown.
    said = re.sub(r"(?m)^ +[\d.]+ (?:a tick: | ).*\n", "", said)
    return {
        "said": said.replace(str(directory), ""),
        "manifest": about,
        "files": sorted(files(directory)),
        "table": pq.read_table(output).drop_columns([*KINDS[kind].private]).to_pylist(),
    }


@every_kind
def test_neighbours_show_the_same_but_for_values(kind: str, tmp_path: Path) -> None:
    """The report, the manifest, the table but for its values, and which files there are."""
    how = KINDS[kind]
    for number, relation in enumerate(how.relations):
        given = ("--relation", relation) if len(how.relations) > 1 else ()
        one, two = (
            seen(kind, tmp_path / f"{number}{i}", some, *BUDGET, *given)
            for i, some in enumerate((rows(), others(how)))
        )
        assert one == two
        _check_report(how, relation, one["said"], one["table"])
        _check_manifest(how, one)
        assert str(tmp_path) not in json.dumps(one)


def _check_report(kind: Kind, relation: str, said: str, table: list[dict[str, Any]]) -> None:
    people = "--user" in kind.words
    covers = "of a key " if "--key" in kind.words else ""
    covers = "of all keys " if kind.at_ticks or people else covers
    if not kind.selects:
        assert f"Guarantee: all releases {covers}together satisfy {dp.ApproxDP(1.0, 1e-6)} " in said
    assert people or f" for neighbours under {relation} (" in said
    for other in KINDS.values():
        assert [part in said for part in other.said] == [part in kind.said for part in other.said]
    largest = re.search(r"(?:at most|a standard deviation of) ([\d.e+]+)[;.]", said)
    assert largest
    stddevs = [one["stddev"] for one in table if "stddev" in one]
    # Per element the log has no rows up to the horizon.
    assert max(stddevs, default=0) <= float(largest[1]) * 1.01
    assert not stddevs or not kind.at_ticks or max(stddevs) >= float(largest[1]) / 1.01
    assert ("not for all rows of a person" in said) == (not people and "one row" in said)
    for part in (
        "at most 3 rows of a person, 2 a key, in 2 keys, count",
        "rows without a person, an empty cell of v",
        f"{NOT_NOISE}",
        "further rows of a person, and rows without one (--user)",
        "how many rows of people do not count is private: a bias that no stated error covers",
        "beam-dpcount bounds shows it",
        "to the letter: one who is spelt in two ways is two people",
        "It is for one person with all rows, where at most 3 rows"
        if kind.at_ticks
        else "It is for what all rows of one person say, where at most 3",
    ):
        assert part in said or not people
    public = "public: the keys, whose the rows are, and the "
    assert (public in said.replace("the domain, ", "")) == (people and not kind.at_ticks)


def _check_manifest(kind: Kind, seen: dict[str, Any]) -> None:
    about = seen["manifest"]
    assert seen["files"] == ["events.csv", "out.parquet", "out.parquet.manifest.json"]
    assert about["guarantee"] in seen["said"]
    assert about["errors"] in seen["said"]
    assert about["budget"] == {"epsilon": 1.0, "delta": 1e-6}
    assert [*about["columns"]] == [*kind.columns]
    assert all(about["columns"].values())
    assert about["made_by"] == f"beam_dpcount {dp.__version__}"
    assert about["you_may"]
    assert about["you_may_not"][0].startswith("Count the same rows again without counting")
    assert "events.csv" not in json.dumps(about)
    people = "one person with all rows" if kind.at_ticks else "what all rows of one person say"
    assert (people in about["protects"]) == ("--user" in kind.words)
    assert about["parameters"]["horizon"] == (6 if kind.at_ticks else 60)


# Replays and accounts


@pytest.mark.long
@each
def test_replays_and_accounts(kind: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeat draws the same noise and costs nothing; another run id costs, or is refused."""
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    log(place / "events.csv", [row(100 + i % 60, KEYS[i % 2], "ab"[i % 3 == 0]) for i in range(99)])
    account = place / "shop.account"
    cost = 2 if kind == "graph" else 1  # without one row others may count in its place
    create_account(str(account), dp.ApproxDP(cost + 0.5, 1e-5), None)
    horizon = 100 if kind in ELEMENTS else 6
    words = line(kind, place, *BUDGET, "--account", account, "--horizon", horizon)
    replayed = ("--secret-env", "COUNTING_SECRET", "--run-id")
    first = succeed(*words, *replayed, "may", main=main_of(kind))
    assert f"this run costs epsilon = {cost}, delta = " in first
    assert "for this secret and --run-id" in first
    about = json.loads((place / "out.csv.manifest.json").read_text())
    assert about["you_may_not"][0].startswith("Count the same rows again with other options")
    assert "at no cost" in about["guarantee"]
    assert about["parameters"]["run_id"] == "may"
    assert "COUNTING_SECRET" not in json.dumps(about)
    kept = read(place / "out.csv")
    again = succeed(*words, *replayed, "may", main=main_of(kind))
    assert "at no cost" in again
    assert read(place / "out.csv") == kept
    before = files(place)
    for more in ((*replayed, "june"), ()):
        assert "would be overspent" in fail(*words, *more, run=lambda *w: run(kind, w))
        assert files(place) == before
    words = without(words, "--account")
    succeed(*words, *replayed, "june", main=main_of(kind))
    assert read(place / "out.csv") != kept
    fresh = []
    for _ in range(2):
        succeed(*words, main=main_of(kind))
        fresh.append(read(place / "out.csv"))
    assert kept != fresh[0] != fresh[1]


# Rows that cannot be read


@each_element
@command_lines.each_path
def test_a_row_that_cannot_be_read_stops_a_run_and_is_named(
    path: str, kind: str, place: Path
) -> None:
    """By file, row and column, never by a cell; at a clock, `test_hostile_clock.py`."""
    words = line(kind, place, *BUDGET, "--timestamp", "time", "--path", path)
    words += ["--on-reject", "raise"] if (kind, path) == ("count", "streaming") else []

    def said(text: str) -> str:
        (place / "events.csv").write_text(text)
        found = fail(*words, run=lambda *w: run(kind, w))
        assert found.startswith(f"error: {place / 'events.csv'}")
        assert {*files(place)} == {"events.csv"}
        return found

    head = "\n".join(["time,who,letter,u,v", *rows()[:2], ""])
    late = said(f"{head}{SECRET_TEXT},ann,a,1,2\n")
    assert ", row 3, column 'time': the timestamp has another format" in late
    assert "--timestamp-format" in late
    assert re.search(r"row 3, column '\w+': the row is too short", said(f"{head}101\n"))
    assert "the file is empty; it needs a header line" in said("")
    assert ", row 3" in said(f'{head}101,"{SECRET_TEXT}\n')


# Pictures and what is estimated


@pytest.mark.exhaustive
@each
@pytest.mark.parametrize(("output", "keyed"), [("out.csv", True), ("out.parquet", False)])
def test_pictures(output: str, keyed: bool, kind: str, place: Path) -> None:
    words = without(line(kind, place, *BUDGET), "--output")
    if not keyed and kind not in ("count", "select"):
        words = without(words, "--key", "--keys")
    files = ("--output", place / output, "--plot", place / "out.png")
    assert f"picture: {place / 'out.png'}" in succeed(*words, *files, main=main_of(kind))
    assert (place / "out.png").read_bytes().startswith(PNG)
    assert (place / "out.png").stat().st_size > 5000


@each
def test_keys_that_are_drawn(kind: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = pictures.caught(monkeypatch)
    words = line(kind, place, *exactly(kind), "--plot", place / "out.png", "--key", "who")
    assert "--plot-keys" not in succeed(*words, main=main_of(kind))
    listed = KINDS[kind].at_ticks and not KINDS[kind].selects
    strange = KEYS[5] if listed else "zoe"
    out = succeed(*words, "--plot-keys", "bob", strange, main=main_of(kind))
    most, some = (
        [panel.name for panel in how["panels"]] if "panels" in how else how["only"] for how in drawn
    )
    assert some == (["bob", strange] if "panels" not in drawn[1] else ["bob"])
    assert most is None or set(most) <= {*KEYS}
    warning = "warning: --plot-keys: 'zoe' has no releases, and is not drawn"
    assert (warning in out.splitlines()) == (not listed)


# A command and its options: what is estimated, what is left out of it, and the picture's title.
ESTIMATES = r"""
count --where u=2 | the true count |  | running counts: u=2
count --where u=2 --bounds 0 5 --unit 0.25 | the true count |  | running counts: u=2
count | the true count |  | running counts: rows
count --where u=2 --bounds 0 0.5 --unit 0.5 | the sum of zeros and ones clipped to [0, 0.5] and rounded to multiples of 0.5 | what is beyond the bounds or rounded off | running counts: u=2 (clipped to [0, 0.5] and rounded to multiples of 0.5)
count --where u=2 --unit 0.3 | the sum of zeros and ones clipped to [0, 1] and rounded to multiples of 0.3 | what is beyond the bounds or rounded off | running counts: u=2 (clipped to [0, 1] and rounded to multiples of 0.3)
count --value u --bounds 0 4 | the sum of values clipped to [0, 4] and rounded to multiples of 1 | what is beyond the bounds or rounded off; values that are not numbers, which count 0 | running sums: u (clipped to [0, 4] and rounded to multiples of 1)
count --value u --bounds 0 1 | the sum of values clipped to [0, 1] and rounded to multiples of 1 | what is beyond the bounds or rounded off; values that are not numbers, which count 0 | running sums: u (clipped to [0, 1] and rounded to multiples of 1)
ticks | the same number of the rows within the clock (so-far) | rows that are outside the clock, of other keys or unreadable; what a key has beyond 1,073,741,824 rows a tick (--max-per-tick) | count every 10 s
ticks --where u=1 --max-per-tick 3 | the same number of the rows within the clock (so-far) | rows that are outside the clock, of other keys or unreadable; what a key has beyond 3 rows a tick (--max-per-tick) | count every 10 s
ticks --metric sum(u,-2,4,unit=0.5) --max-per-tick 3 | the same number of the rows within the clock (so-far) | rows that are outside the clock, of other keys or unreadable; what a key has beyond 3 rows a tick (--max-per-tick); what of numbers is beyond the bounds of a metric or rounded off | sum_u every 10 s
ticks --separator ; --max-items 2 | the same number of the rows within the clock (so-far) | rows that are outside the clock, of other keys or unreadable; what a key has beyond 1,073,741,824 rows a tick (--max-per-tick); keys of a cell beyond its first 2 (--max-items) | count every 10 s
ticks --path streaming | the same number of the rows within the clock (so-far) | rows that are outside the clock, of other keys or unreadable; what a key has beyond 1,073,741,824 rows a tick (--max-per-tick); late rows, until the next tick (--late fold) | count every 10 s
ticks --path streaming --late drop | the same number of the rows within the clock (so-far) | rows that are outside the clock, of other keys or unreadable; what a key has beyond 1,073,741,824 rows a tick (--max-per-tick); late rows (--late drop) | count every 10 s
histogram | the true count of an item of the domain | items that are not of the domain | histogram of letter (items of the domain)
histogram --separator ; --max-items 2 | the count of the first 2 items of the domain in a row | items that are not of the domain; those of a row beyond its first 2 (--max-items) | histogram of letter (the first 2 items of the domain in a row)
sequences | the count of a word in letters of the domain | texts that are not of the domain | counts of words of letter (in letters of the domain)
sequences --rest b --episodes --max-span 3 | the count of an episode's minimal occurrences in letters of the domain within 3 rows | what texts say that count as 'b' (--rest); cells without text; occurrences that are not within 3 rows (--max-span) | counts of episodes of letter (in letters of the domain, others as 'b', within 3 rows)
graph --what edges | the number of edges of the graph on the given vertices | rows that name another vertex | number of edges
graph --what edges --max-degree 1 | the number of edges of the graph on the given vertices (capped at 1 pairs a vertex) | rows that name another vertex; edges beyond the first 1 pairs of a vertex (--max-degree) | number of edges (capped at 1 pairs a vertex)
graph --what triangles --max-degree 2 | the number of triangles of the graph on the given vertices (capped at 2 pairs a vertex) | rows that name another vertex; edges beyond the first 2 pairs of a vertex (--max-degree) | number of triangles (capped at 2 pairs a vertex)
graph --what triangles --max-degree 4 --asserted | the number of triangles of the graph on the given vertices | rows that name another vertex | number of triangles
graph --what kstars --max-degree 3 -k 2 | the number of stars of 2 rays of the graph on the given vertices (of a vertex's first 3 neighbours) | rows that name another vertex; neighbours of a vertex beyond its first 3 (--max-degree) | number of stars of 2 rays (of a vertex's first 3 neighbours)
graph --what highdegree --threshold 2 | the number of vertices of 2 neighbours or more of the graph on the given vertices | rows that name another vertex | number of vertices of 2 neighbours or more
graph --what degrees --max-degree 3 | the number of vertices by degree of the graph on the given vertices | rows that name another vertex | number of vertices by degree
graph --what forest --max-weight 9 --weight u | the cost of a minimum spanning forest of the graph on the given vertices (of weights from 1 to 9) | rows that name another vertex; rows of other weights than 1 to 9; a pair's weights after its first | cost of a minimum spanning forest (of weights from 1 to 9)
graph --what cuts --weight u --unit 0.25 | the weight of a pair of the given vertices (of weights from -1 to 1 rounded to multiples of 0.25) | rows that name another vertex; rows of weights beyond -1 or 1; what of a weight is rounded off | weights of pairs (of weights from -1 to 1 rounded to multiples of 0.25)
"""  # noqa: E501


@pytest.mark.parametrize(
    ("flags", "what", "left_out", "title"),
    [
        pytest.param(*one.split(" | "), id=one.split(" | ")[0])
        for one in ESTIMATES.replace("| |", "|  |").split("\n")[1:-1]
    ],
)
def test_errors_are_of_what_is_estimated(
    flags: str, what: str, left_out: str, title: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report, title and footer name it, and no truth is claimed where something is left out."""
    drawn = pictures.caught(monkeypatch)
    kind, *more = flags.split()
    words = without(line(kind, place, *BUDGET, "--plot", place / "out.png"), "--where")
    out = succeed(*words, "--key", "who", *more, main=main_of(kind))
    (how,) = drawn
    assert how["title"] == f"Private {title} by who"
    if kind == "ticks":
        assert "95 % of the time within" in out
    else:
        assert re.search(rf"within [\d.e+]+ of {re.escape(what)}; the largest", out)
    assert re.findall(f"{NOT_NOISE}(.*)\\.", out) == [left_out] * bool(left_out)
    if kind not in ("sequences", "ticks") and "cuts" not in more:
        assert re.search(rf"about 95 %, {re.escape(what)}[;.]", how["guarantee"])
    assert (f"{NOT_NOISE}{left_out}." if left_out else "") in how["guarantee"]
    assert (NOT_NOISE in how["guarantee"]) == bool(left_out)
    assert "truth" not in out + how["guarantee"]
