"""--check: what it finds in rows, that it writes and spends nothing, and its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_dpcount.commands import count, graph, histogram, sequences, ticks
from beam_dpcount.commands.looks import HEADING
from tests.command_lines import Ended, command

MODULES = {
    "count": (count, "--key page --horizon 20"),
    "ticks": (ticks, "--key page --timestamp at --tick 60 --start 1700000000 --horizon 10"),
    "histogram": (histogram, "--key page --item what --horizon 20"),
    "sequences": (sequences, "--letter what --max-length 2 --horizon 20"),
    "graph": (graph, "--edge what who --horizon 20"),
}
HEAD = "page,what,who,n,at\n"
ROWS = [
    "ERROR,buy,ann,1,1700000000",
    "WARN,view,bob,70,1700000030",
    "ERROR,buy,ann,x,1700000100",
    "INFO,buy,,2,1700009000",
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(HEAD + "\n".join(ROWS) + "\n")
    return path


def look(name: str, log: Path, *more: object, wrong: bool | None = None) -> str:
    """What --check says; `wrong`: whether something should look so."""
    module, words = MODULES[name]
    out = log.parent / "out.csv"
    budget = ("--epsilon", 1, "--delta", "1e-6", "--output", out)
    ended: Ended = command(
        *("--input", log, *words.split(), *budget, "--check", *more), main=module.main
    )
    assert ended.err == ""
    assert ended.out.startswith(f"{HEADING}\n\n")
    assert ended.status == ("LOOKS WRONG" in ended.out) != ("nothing looks wrong" in ended.out)
    assert wrong is None or ended.status == wrong, ended.out
    assert not out.exists()
    return ended.out


def test_keys_that_never_occur(log: Path) -> None:
    said = look("ticks", log, "--keys", "ERROR,WARN", "INFO", wrong=True)
    assert "1 of 2 in --keys never occur: 'ERROR,WARN'" in said
    assert "'ERROR,WARN' is one text: give --keys ERROR WARN, with spaces between" in said
    assert "2 texts not in --keys, 3 times: 'ERROR' (2), 'WARN' (1)" in said
    said = look("ticks", log, "--keys", "error", "Wran", wrong=True)
    assert "'error' may be 'ERROR', which occurs" in said
    assert "'Wran' may be 'WARN', which occurs" in said
    said = look("ticks", log, "--keys", "ERROR", "WARN", wrong=False)
    assert "1 text not in --keys, 1 times: 'INFO' (1)" in said
    assert "1 row (25.0%): the key is not among keys" in said
    log.write_text(log.read_text().replace("ERROR", "/home"))
    said = look("ticks", log, "--keys", "/home,/cart", wrong=True)
    assert "'/home,/cart' is one text: give --keys /home /cart, with spaces between" in said


def test_keys_of_a_cell(log: Path) -> None:
    log.write_text(f"{HEAD}a;b,x,ann,1,1700000000\nb;c;a,x,bob,1,1700000001\n")
    several = ("--separator", ";", "--max-items", 1)
    said = look("ticks", log, "--keys", "a", "b", *several, wrong=False)
    assert "1 text not in --keys, 1 times: 'c' (1)" in said
    assert "2 rows with more than --max-items 1: the rest of them is left out" in said


@pytest.mark.parametrize(
    ("times", "given", "said"),
    [
        ((1700000000, 1700000300), "unix", None),
        ((1700000000, 1700000300), "unix-ms", "seconds, and are read as milliseconds (unix-ms): "
         "give --timestamp-format unix"),
        ((1700000000000, 1700000300000), "unix", "milliseconds, and are read as seconds (unix): "
         "give --timestamp-format unix-ms"),
        ((1700000000000, 1700000300000), None, "milliseconds, and are read as seconds: "
         "give --timestamp-format unix-ms"),
        ((1700000000000, 1700000300000), "unix-ms", None),
        ((1700000000000000, 1700000300000000), "unix-ms", "microseconds, and are read as "
         "milliseconds (unix-ms): divide them"),
        ((1700000000 * 10**9, 1700000300 * 10**9), "unix", "nanoseconds, and are read as seconds"),
        ((1600000000, 1600000300), "unix", ""),  # another year
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["ticks", "count"])
def test_times_in_another_unit(
    name: str, times: tuple[int, int], given: str | None, said: str | None, log: Path
) -> None:
    log.write_text(HEAD + "".join(f"ERROR,buy,ann,1,{time}\n" for time in times))
    words = [] if given is None else ["--timestamp-format", given]
    words += ["--keys", "ERROR"] if name == "ticks" else []
    words += [] if name == "ticks" else ["--timestamp", "at"]
    expected = said is not None and (name == "ticks" or said != "")
    found = look(name, log, *words, wrong=expected)
    assert (": they look like" in found) == bool(said)
    if said:
        assert f"they look like {said}" in found
    elif expected:
        assert "most times lie outside the clock" in found


def test_times_outside_the_clock_and_no_times(log: Path) -> None:
    said = look("ticks", log, "--keys", "ERROR", "WARN", "INFO", wrong=False)
    assert "times from 2023-11-14 22:13:20 UTC to 2023-11-15 00:43:20 UTC" in said
    assert "outside the clock: 0 rows before --start, 1 at or after its end" in said
    log.write_text(f"{log.read_text()}ERROR,buy,ann,1,yesterday\n")
    said = look("ticks", log, "--keys", "ERROR", "WARN", "INFO", wrong=True)
    reason = "column 'at': the timestamp has another format"
    assert f"LOOKS WRONG: 1 row cannot be read and counts nothing: {reason}" in said
    assert "yesterday" not in said
    said = look("count", log, "--timestamp", "at", wrong=True)
    assert (
        "1 time cannot be read, and the first stops a run: the timestamp has another format" in said
    )


def test_rows_of_ticks_that_have_not_ended(log: Path) -> None:
    words = ("ticks", log, "--keys", "ERROR", "WARN", "INFO", "--until")
    said = look(*words, 1700000070, wrong=False)
    by = "lie in ticks that have not ended by 2023-11-14T22:14:30Z (--until), and do not count"
    assert f"\n1 row {by.replace('lie', 'lies', 1).replace('do', 'does')}\n" in said
    said = look(*words, 1700000000, wrong=True)
    by = by.replace("22:14:30", "22:13:20")
    assert f"\n3 rows {by}\n" in said
    assert "LOOKS WRONG: no row counts" in said
    log.write_text(HEAD + "\n".join(ROWS[:3]) + "\n")
    assert f"LOOKS WRONG: all rows, 3, {by}" in look(*words, 1700000000, wrong=True)
    said = look(*words[:5], *words[6:], 1700000060, "--user", "who", "--per-user", 5, wrong=False)
    assert "2 people; the limit on each (--per-user 5) leaves out 0 rows" in said


def test_numbers_and_bounds(log: Path) -> None:
    said = look("count", log, "--value", "n", "--bounds", 0, 50, wrong=True)
    assert "n from 1 to 70" in said
    assert "LOOKS WRONG: 1 row of 4: the value is not a number" in said
    assert "1 row (25.0%): the value lies outside the bounds (0, 50) and is clipped" in said
    log.write_text(log.read_text().replace(",x,", ",3,"))
    assert "not a number" not in look("count", log, "--value", "n", "--bounds", 0, 50, wrong=False)


def test_a_condition_that_is_never_met(log: Path) -> None:
    assert "no row has what=Buy: is its spelling right?" in look(
        "count", log, "--where", "what=Buy", wrong=True
    )


def test_rows_beyond_the_horizon(log: Path) -> None:
    said = look("count", log, "--horizon", 1, wrong=True)
    assert "1 row would have no release, beyond --horizon 1: give 2 or more" in said
    assert "the largest key, 'ERROR', has 2 rows (--horizon 2)" in look(
        "count", log, "--horizon", 2, wrong=False
    )


def test_limits_on_people(log: Path) -> None:
    rows = ["ERROR,buy,ann,1,1700000000"] * 3 + ["WARN,buy,bob,1,1700000000", ROWS[3]]
    log.write_text(HEAD + "\n".join(rows) + "\n")
    people = ("--user", "who", "--per-user", 1)
    for name, more in (("count", ()), ("histogram", ("--domain", "buy"))):
        said = look(name, log, *more, *people)
        assert "1 row of nobody (an empty who): they do not count" in said
        assert "2 people; the limit on each (--per-user 1) leaves out 3 rows (60.0%)" in said
        assert "some rows of 50.0% of the people, and all of 33.3% of the keys" in said
        assert "most rows are left out by the limit on each person" in said
    for keys in (("--keys", "ERROR", "WARN"), ("--select-keys",)):
        said = look("ticks", log, *keys, *people)
        assert "2 people; the limit on each (--per-user 1) leaves out 2 rows (50.0%)" in said


def test_sums_of_a_tick_that_are_clipped(log: Path) -> None:
    log.write_text(HEAD + "ERROR,buy,ann,1,1700000000\n" * 3)
    said = look("ticks", log, "--keys", "ERROR", "--max-per-tick", 2, wrong=False)
    assert "1 ticks of keys have more than 2 rows (--max-per-tick)" in said
    assert "clipped" not in look("ticks", log, "--keys", "ERROR", "--max-per-tick", 3, wrong=False)


def test_items_and_letters_that_never_occur(log: Path) -> None:
    said = look("histogram", log, "--domain", "buy", "veiw", wrong=True)
    assert "1 of 2 in --domain never occur: 'veiw'; 'veiw' may be 'view', which occurs" in said
    said = look("sequences", log, "--domain", "buy", "view", "sell", wrong=True)
    assert "1 of 3 in --domain never occur: 'sell'" in said


def test_graphs(log: Path) -> None:
    names = log.parent / "names.txt"
    names.write_text("a\nb\nc\nd\nq\n")
    edges = ["a,b", "b,a", "a,c", "a,d", "b,c", "a,z"]
    log.write_text(HEAD + "".join(f"k,{edge},1,0\n" for edge in edges))
    given = ("--vertices-file", names, "--what", "triangles", "--max-degree", 2)
    said = look("graph", log, *given, wrong=True)
    assert "1 of 5 in --vertices-file never occur: 'q'" in said
    assert "1 text not in --vertices-file, 1 times: 'z' (1)" in said
    assert "1 vertices have more than 2 pairs (--max-degree): 1 pair beyond that" in said
    said = look("graph", log, *given, "--asserted")
    assert "1 vertices have more than 2 neighbours, against your word (--asserted)" in said


def test_rows_that_cannot_be_read_and_none(log: Path) -> None:
    log.write_text(log.read_text() + '"never closed\n')
    assert "LOOKS WRONG: reading stopped: " in look("count", log, wrong=True)
    log.write_text(HEAD)
    assert "LOOKS WRONG: there are no rows" in look("count", log, wrong=True)
