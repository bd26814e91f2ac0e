"""What goes in and out of commands: JSON lines, standard input and output, two columns of a time;
and how a command ends before its time."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_dpcount as dp
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.budget.account_file import create as create_account
from beam_dpcount.budget.conversions import rounded_up
from beam_dpcount.commands import histogram, stop, ticks
from beam_dpcount.commands import runner as running
from beam_dpcount.commands.files.beside import beside
from tests.command_lines import EXACT, ROOT, SECRET_TEXT, command, fail, succeed, written

START = 1_700_000_000
ROWS: list[dict[str, Any]] = [
    {"page": "ab"[i % 2], "n": i % 3, "who": f"p{i % 4}", "at": START + i} for i in range(40)
]
COUNT = ("--key", "page", "--value", "n", "--bounds", 0, 2, "--timestamp", "at", "--horizon", 40)
CLOCK = ("--tick", 10, "--start", START, "--horizon", 4)
TICKS = ("--key", "page", "--keys", "a", "b", "--timestamp", "at", *CLOCK)


def csv_of(rows: list[dict[str, Any]], header: bool = True) -> str:
    names = [*rows[0]]
    lines = [",".join(str(row[name]) for name in names) for row in rows]
    return "\n".join([",".join(names), *lines]) + "\n"


def lines_of(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def in_csv(place: Path, rows: list[dict[str, Any]]) -> Path:
    path = place / "in.csv"
    path.write_text(csv_of(rows))
    return path


def in_lines(place: Path, rows: list[dict[str, Any]]) -> Path:
    path = place / "in.jsonl"
    path.write_text(lines_of(rows))
    return path


def in_gzip(place: Path, rows: list[dict[str, Any]]) -> Path:
    path = place / "in.ndjson.gz"
    path.write_bytes(gzip.compress(lines_of(rows).encode()))
    return path


def in_parquet(place: Path, rows: list[dict[str, Any]]) -> Path:
    path = place / "in.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


# What goes in


HOSTILE = ("null", "[1]", '{"a": 1}', '"\\ud800"', "true", '"x"', "9" * 4000, "1e999", "NaN")


@pytest.mark.parametrize("cell", [*HOSTILE, None], ids=[*HOSTILE[:6], "long", *HOSTILE[7:], "none"])
def test_no_protected_cell_of_json_stops_a_run(cell: str | None, tmp_path: Path) -> None:
    """Its row takes its step, whatever it holds, or lacks."""
    path, out = tmp_path / "in.jsonl", tmp_path / "out.csv"
    head = '{"page": "a", "at": 1700000005'
    odd = head + "}" if cell is None else f'{head}, "n": {cell}}}'
    path.write_text(lines_of(ROWS[:4]) + odd + "\n")
    succeed("--input", path, *COUNT, *EXACT, "--output", out)
    assert [step for key, step, _, _ in written(out) if key == "a"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "row 5: not a JSON object"),
        ("{", "row 5: not a JSON object"),
        ("[" * 10**5, "row 5: not a JSON object"),
        ('{"n": 1, "at": 1700000005}', "row 5: no field 'page' among 2 of the row"),
        ('{"page": ["a"], "at": 1700000005}', "row 5, column 'page': an object, a list or half"),
        ('{"page": "a", "at": "s3cr3t"}', "row 5, column 'at': the timestamp has another format"),
        ('{"page": "a", "at": {"s3cr3t": 1}}', "row 5, column 'at': an object, a list or half"),
    ],
)
def test_public_fields_of_json_must_be_there(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(lines_of(ROWS[:4]) + line + "\n")
    error = fail("--input", path, *COUNT, *EXACT, "--output", tmp_path / "out.csv")
    assert said in error
    assert SECRET_TEXT not in error
    assert [*tmp_path.iterdir()] == [path]


def test_json_that_is_read_as_csv_says_which_option_to_give(tmp_path: Path) -> None:
    """As on standard input, which has no name that could say so."""
    path = tmp_path / "in.txt"
    path.write_text(lines_of(ROWS[:4]))
    error = fail("--input", path, *COUNT, *EXACT, "--output", tmp_path / "out.csv")
    assert "lines of JSON are read with --format jsonl" in error
    assert '"' not in error  # nor a cell


def test_a_time_in_two_columns(tmp_path: Path) -> None:
    path, out = tmp_path / "in.csv", tmp_path / "out.csv"
    path.write_text("day,hour,page\n2023-11-14,22:13:25,a\n2023-11-14,22:13:31,a\n")
    key = ("--input", path, "--key", "page", "--keys", "a", *CLOCK)
    words = (*key, "--timestamp", "day", "hour", *EXACT, "--output", out)
    succeed(*words, "--timestamp-format", "iso", main=ticks.main)
    assert [value for *_, value in written(out)] == [1, 2, 2, 2]
    path.write_text("day,hour,page\n14/11/2023,10:13:25 PM,a\n14/11/2023,10:13:31 PM,a\n")
    succeed(*words, "--timestamp-format", "%d/%m/%Y %I:%M:%S %p", main=ticks.main)
    assert [value for *_, value in written(out)] == [1, 2, 2, 2]

    def run(*more: object) -> Any:
        return command(*words, "--timestamp-format", "unix", *more, main=ticks.main)

    assert "--timestamp DATE TIME is read as one text with a blank between" in fail(run=run)
    path.write_text("day,hour,page\n14/11/2023,,a\n")
    succeed(*words, "--timestamp-format", "%d/%m/%Y %H:%M:%S", main=ticks.main)
    assert [value for *_, value in written(out)] == [0, 0, 0, 0]


# Standard input and output


def run_door(
    *words: object, given: bytes = b"", place: Path, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "beam_dpcount", *map(str, words)],
        input=given,
        capture_output=True,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)},
        timeout=120,
        **options,
    )


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (in_csv, "csv"),
        pytest.param(in_gzip, "jsonl", marks=pytest.mark.exhaustive),
        pytest.param(in_parquet, "parquet", marks=pytest.mark.exhaustive),
    ],
)
def test_standard_input_and_output(write: Callable[..., Path], kind: str, tmp_path: Path) -> None:
    """What comes out is the file, and nothing else; nothing is left in the temporary directory."""
    place, out = tmp_path / "empty", tmp_path / f"out.{kind}"
    place.mkdir()
    data = write(tmp_path, ROWS)
    words = (*TICKS, *EXACT)
    succeed("--input", data, *words, "--output", out, main=ticks.main)
    form = ("--format", "jsonl") if write is in_gzip else ()
    ended = run_door(
        *("ticks", "--input", "-", *form, *words, "--output", "-", "--output-format", kind),
        given=data.read_bytes(),
        place=place,
    )
    assert ended.returncode == 0, ended.stderr
    if kind == "parquet":  # its metadata have a name and a time
        (place / "p").write_bytes(ended.stdout)
        assert pq.read_table(place / "p").equals(pq.read_table(out))
        (place / "p").unlink()
    else:
        assert ended.stdout == out.read_bytes()
    assert b"private counts: standard output" in ended.stderr
    assert b"Guarantee: " in ended.stderr
    assert [*place.iterdir()] == []


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (("--input", "-"), b"", b"standard input is empty; --input - reads it"),
        (("--input", "-", "-"), b"a", b"--input - is standard input, which can be read once"),
        (("--input", "-"), b"\x1f\x8b\x08\x00half", b"error: "),
    ],
)
def test_standard_input_that_cannot_be_used(
    words: tuple[object, ...], given: bytes, said: bytes, tmp_path: Path
) -> None:
    ended = run_door("ticks", *words, *TICKS, *EXACT, "--output", "-", given=given, place=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.long
def test_an_output_that_nobody_reads(tmp_path: Path) -> None:
    """As in `beam-dpcount ... --output - | head -1`."""
    data, (reader, writer) = in_csv(tmp_path, ROWS * 300), os.pipe()
    os.close(reader)
    words = ("count", "--input", data, *COUNT, "--horizon", 10**6, *EXACT, "--output", "-")
    with os.fdopen(writer, "wb") as out:
        ended = subprocess.run(
            [sys.executable, "-m", "beam_dpcount", *map(str, words)],
            stdout=out,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            timeout=120,
            check=False,
        )
    assert ended.returncode == 2
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(b"error: standard output cannot be written: Broken pipe; some of the")
    assert last.endswith(b"and the budget is spent")
    assert [*tmp_path.iterdir()] == [data]


@pytest.mark.parametrize("words", [("choose", "--horizon", 9), ("errors", "--horizon", 9)])
def test_a_reader_that_has_gone_ends_a_command_as_any_tool(words: tuple[object, ...]) -> None:
    """As in `beam-dpcount choose | true`: the status of SIGPIPE, and not a word."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        ended = subprocess.run(
            [sys.executable, "-m", "beam_dpcount", *map(str, words), "--rho", "0.1"],
            stdout=out,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=120,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_parquet_does_not_go_to_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = ("ticks", "--input", in_csv(tmp_path, ROWS), *TICKS, *EXACT, "--output", "-")
    ended = subprocess.run(
        [sys.executable, "-m", "beam_dpcount", *map(str, words), "--output-format", "parquet"],
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )
    os.close(ours)
    os.close(theirs)
    assert ended.returncode == 2
    assert b"is a terminal, which cannot show Parquet" in ended.stderr


# How a command ends before its time


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "status", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "terminated", marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGHUP, 129, "the terminal is gone", marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGQUIT, 131, "quit", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize(
    "after", [2.5, *(pytest.param(s, marks=pytest.mark.exhaustive) for s in (0.3, 1.0, 1.7, 4.0))]
)
def test_a_signal_ends_a_run_and_leaves_nothing(
    after: float, number: int, status: int, word: str, tmp_path: Path
) -> None:
    """Whatever it is at: reading options, standard input, or rows; counting; writing."""
    data, place = in_csv(tmp_path, ROWS * 60_000), tmp_path / "work"  # some seconds
    place.mkdir()
    words = ("count", "--input", "-", *COUNT, "--horizon", 10**6, *EXACT, "--output", "out.csv")
    with data.open("rb") as given:
        process = subprocess.Popen(
            [sys.executable, "-m", "beam_dpcount", *map(str, words)],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)},
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # nohup ignores one of them
        )
    time.sleep(after)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    if process.returncode in (0, -number) and b"private counts" in out:
        assert after > 2  # a fast machine was done before, or Python was about to end
        assert {path.name for path in place.iterdir()} == {"out.csv", "out.csv.manifest.json"}
        return
    if process.returncode == -number:
        assert after < 0.5  # before Python had read a line of ours
    else:
        assert process.returncode == status, err
        assert err.decode().splitlines()[-1] == f"{word}: nothing was written"
        assert b"private counts" not in out
    assert [*place.iterdir()] == []


def test_what_is_complete_is_said_and_stays(tmp_path: Path) -> None:
    out, picture = tmp_path / "out.csv", tmp_path / "out.png"
    picture.write_text("of before")
    stop.begin()
    stop.expect(str(out), str(picture), "gs://bucket/out.csv")
    assert stop.complete() == "nothing was written"
    left = Path(stop.unfinished(str(out)))
    left.write_text("half")
    other = Path(stop.unfinished(str(out), run="another"))
    other.write_text("of another run")
    out.write_text("whole")
    stop.note("job", "look where it runs")
    assert stop.complete() == f"complete is {out}, and nothing else; look where it runs"
    place = Path(stop.temporary())
    assert place.stat().st_mode & 0o777 == 0o700
    stop.clean()
    assert (left.exists(), other.exists(), out.exists(), place.exists()) == (
        False,
        True,
        True,
        False,
    )
    picture.write_text("anew")
    assert stop.complete().startswith(f"complete are {out}, {picture}, and nothing else")
    stop.begin()


def test_what_is_meant() -> None:
    assert did_you_mean("Whom", ["who", "time"]) == "did you mean who? "
    assert did_you_mean("zzz", ["who", "time"]) == ""
    assert did_you_mean("--eps", ["--replays", "--epsilon"]) == "did you mean --epsilon? "
    assert did_you_mean("--tick", ["--check"]) == ""  # dashes are no likeness


# What an attacker found


def test_a_blank_line_of_one_column_takes_its_step(tmp_path: Path) -> None:
    """It is an empty cell; where there are more columns it is nothing."""
    path, out = tmp_path / "in.csv", tmp_path / "out.csv"
    words = ("--item", "w", "--domain", "a", "--horizon", 9, *EXACT, "--output", out)
    for text, steps in (("w\na\nb\na\n", 3), ("w\na\n\na\n", 3), ("w,x\na,1\n\na,1\n", 2)):
        path.write_text(text)
        succeed("--input", path, *words, main=histogram.main)
        assert len(out.read_text().splitlines()) == 1 + steps


def test_two_names_of_a_file_are_read_once(tmp_path: Path) -> None:
    data, out = in_csv(tmp_path, ROWS), tmp_path / "out.csv"
    os.link(data, tmp_path / "also.csv")
    (tmp_path / "third.csv").symlink_to(data)
    words = ("--input", data, tmp_path / "also.csv", tmp_path / "third.csv", *COUNT, *EXACT)
    succeed(*words, "--output", out)
    assert len(written(out)) == len(ROWS)


def test_files_that_come_later_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an account has the digests of is what is counted."""
    in_csv(tmp_path, ROWS)
    finished = running.finished

    def then(*given: Any) -> Any:
        (tmp_path / "in2.csv").write_text(csv_of(ROWS))
        return finished(*given)

    monkeypatch.setattr(running, "finished", then)
    out = tmp_path / "out.csv"
    succeed("--input", tmp_path / "in*.csv", *COUNT, *EXACT, "--output", out)
    assert len(written(out)) == len(ROWS)


def test_nobody_reads_a_file_that_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    rename = os.rename

    def seen(name: str, place: str) -> None:
        rename(name, place)
        modes.append(Path(place).stat().st_mode & 0o777)

    monkeypatch.setattr(os, "rename", seen)
    out, rejected = tmp_path / "out.csv", tmp_path / "rejected.csv"
    with beside(str(out)) as name:
        assert Path(name).stat().st_mode & 0o777 == 0o600
        assert [*tmp_path.iterdir()] == [Path(name)]
    umask = os.umask(0o022)
    os.umask(umask)
    assert modes == [0o666 & ~umask]
    out.chmod(0o640)
    words = ("--input", in_csv(tmp_path, ROWS), *COUNT, *EXACT)
    succeed(*words, "--output", out, "--rejected", rejected)
    assert out.stat().st_mode & 0o777 == 0o640  # as it was
    assert rejected.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("before", "after"), [(None, 0o600), (0o644, 0o600), (0o440, 0o400)])
def test_a_private_file_is_its_owners_alone_whatever_was_there(
    before: int | None, after: int, tmp_path: Path
) -> None:
    """A picture of counts may have been there, which is replaced by one of the exact ones."""
    file = tmp_path / "file"
    if before is not None:
        file.touch()
        file.chmod(before)
    with beside(str(file), private=True) as name:
        Path(name).write_text("secret")
    assert file.stat().st_mode & 0o777 == after


def test_an_account_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "account.jsonl"
    create_account(str(file), dp.ApproxDP(1.0, 1e-6), None)
    before = file.read_bytes()
    words = ("--input", in_csv(tmp_path, ROWS), *COUNT, *EXACT, "--overwrite", "--output", file)
    assert "is an account, which is not replaced" in fail(*words)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (1.0, 6, "1"),
        (0.1, 6, "0.1"),
        (1.0000049, 6, "1.00001"),
        (7.76622, 4, "7.767"),
        (1e-6, 6, "1e-06"),
        (123456.2, 6, "123457"),
    ],
)
def test_what_is_guaranteed_is_rounded_up(number: float, digits: int, text: str) -> None:
    assert rounded_up(number, digits) == text
    assert float(text) >= number
    if digits == 6:
        assert str(dp.PureDP(number)) == f"epsilon = {text} (pure)"


def test_an_error_that_nobody_expected_shows_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise AssertionError(SECRET_TEXT)

    monkeypatch.setattr(running, "finished", broken)
    ended = command(
        "--input", in_csv(tmp_path, ROWS), *COUNT, *EXACT, "--output", tmp_path / "o.csv"
    )
    assert ended.status == 3
    *warnings, line = ended.err.splitlines()
    assert all(one.startswith("warning: ") for one in warnings)
    assert SECRET_TEXT not in ended.out + ended.err
    assert line.startswith("error: an unexpected AssertionError; what was done may have cost")
    assert SECRET_TEXT not in line


def test_json_lines_say_what_is_not_checked(tmp_path: Path) -> None:
    words = ("--input", in_lines(tmp_path, ROWS), *COUNT, *EXACT, "--output", tmp_path / "out.csv")
    said = succeed(*words)
    assert "warning: JSON lines have no header, and so a misspelt name counts nothing: " in said
    assert "whether rows have n is not checked; --check does, privately" in said
