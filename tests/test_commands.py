"""A command is one file and one entry; its help loads no Beam; errors keep their parts."""

import csv
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import beam_dpcount as dp
from beam_dpcount import commands
from beam_dpcount.checks import ParameterError
from beam_dpcount.commands import door
from beam_dpcount.commands.options import option
from beam_dpcount.commands.task import Task

ROOT = Path(__file__).resolve().parents[1]
LINES = 120  # of a command, about


def test_the_worked_example_is_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file, as CONTRIBUTING has it, and one entry."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (code,) = (c for c in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "Task" in c)
    assert len(code.splitlines()) <= LINES
    (tmp_path / "mentions.py").write_text(code)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    monkeypatch.setattr(
        commands, "COMMANDS", {**commands.COMMANDS, "mentions": "How often is a word said?"}
    )
    log, out, picture = tmp_path / "log.csv", tmp_path / "out.csv", tmp_path / "out.png"
    log.write_text("who,said\nann,buy it\nann,no\nbob,buy\nann,will buy\n")
    words = ["--key", "who", "--text", "said", "--word", "buy", "--horizon", "9", "--plot"]
    exact = [str(picture), "--rho", "1e12", "--mechanism", "SmoothBinary", "--output", str(out)]
    try:
        door.main(["mentions", "--input", str(log), *words, *exact, "--verbose"])
        with pytest.raises(ValueError, match="--horizon must be from 1 to 2"):
            door.main(
                ["mentions", "--input", str(log), *words, *exact, "--overwrite", "--horizon", "0"]
            )
    finally:
        sys.modules.pop("beam_dpcount.commands.mentions", None)
    with open(out, newline="") as file:
        found = [(r["key"], int(r["step"]), float(r["value"])) for r in csv.DictReader(file)]
    assert found == [("ann", 1, 1), ("ann", 2, 1), ("ann", 3, 2), ("bob", 1, 1)]
    assert picture.read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert "note: a row counts 1 if its said has 'buy' in it" in said
    assert "Guarantee: all releases of a key together satisfy rho = 1e+12" in said
    assert "the true count of mentions" in said


def test_a_command_that_is_not_there() -> None:
    for argv, said in (
        ([], "give a command: it is one of count, ticks, "),
        (["cuont"], "there is no command 'cuont': did you mean count? it is one of count, ticks, "),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            door.main(argv)


def test_a_command_that_moved_says_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert not commands.MOVED.keys() & commands.COMMANDS.keys()
    said = r"^'compare' is no longer a command: python -m benchmarks\.papers, [^\n]*$"
    for argv in (["compare"], ["compare", "--quick"], ["compare", "--help"]):
        with pytest.raises(ValueError, match=said):
            door.main(argv)
        assert capsys.readouterr().out == ""


def test_the_door_says_what_is_behind_it(capsys: pytest.CaptureFixture[str]) -> None:
    door.main(["--help"])
    said = capsys.readouterr().out
    assert [*commands.COMMANDS] == re.findall(r"^  ([a-z]+)  +[A-Z`]", said, re.M)
    door.main(["--version"])
    assert capsys.readouterr().out == f"beam-dpcount {dp.__version__}\n"


def in_a_process(program: str) -> str:
    """What a program prints that must end well, without a word on stderr."""
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_help_and_mistakes_load_no_beam() -> None:
    said = in_a_process(
        "import contextlib, pkgutil, sys\n"
        "from beam_dpcount.commands import COMMANDS\n"
        "for name in COMMANDS:\n"
        "    main = pkgutil.resolve_name(f'beam_dpcount.commands.{name}:main')\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main(['--help'])\n"
        "    try:\n"
        "        main(['--no-such-option'])\n"
        "    except ValueError:\n"
        "        print('refused', name)\n"
        "    assert not {'apache_beam', 'matplotlib'} & {*sys.modules}, name\n"
    )
    parts = re.split(r"(?m)^refused (\w+)\n", said)
    assert parts[1::2] == [*commands.COMMANDS]
    for name, text in zip(parts[1::2], parts[::2], strict=False):
        assert text.startswith(f"usage: beam-dpcount {name} ")
        assert f"\nexample:\n  beam-dpcount {name} " in text


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        ("door.console()", "beam-dpcount"),
        (
            "runpy.run_module('beam_dpcount', run_name='__main__', alter_sys=True)",
            "python -m beam_dpcount",
        ),
    ],
)
def test_every_command_has_both_doors(start: str, shown: str) -> None:
    said = in_a_process(
        "import contextlib, runpy, sys\n"
        "from beam_dpcount.commands import COMMANDS, door\n"
        "for name in COMMANDS:\n"
        "    sys.argv = ['beam-dpcount', name, '--help']\n"
        "    with contextlib.suppress(SystemExit):\n"
        f"        {start}\n"
    )
    usages = [f"{shown} {name}" for name in commands.COMMANDS]
    assert re.findall(rf"(?m)^usage: ({re.escape(shown)} \w+) ", said) == usages


@pytest.mark.exhaustive
@pytest.mark.parametrize("module", [("benchmarks.papers",), ("beam_dpcount", "demo")])
def test_what_imports_beam_for_its_help_keeps_its_warnings_to_itself(
    module: tuple[str, ...],
) -> None:
    words = [sys.executable, "-m", *module, "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_do_not_import_each_other() -> None:
    folder = ROOT / "beam_dpcount" / "commands"
    for name in commands.COMMANDS:
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        for other in commands.COMMANDS:
            assert not re.search(rf"commands\.{other}\b|commands import .*\b{other}\b", text), name
    assert {task.name for task in Task.__subclasses__()} <= {*commands.COMMANDS, "mentions"}


# Errors about parameters


def test_parameter_errors_say_the_same_of_options() -> None:
    error = ParameterError("max_span", "=1 steps are too few", "give a larger {max_span}")
    assert str(error) == "max_span=1 steps are too few: give a larger max_span"
    assert error.in_options(option, {}) == (
        "--max-span 1 steps are too few: give a larger --max-span"
    )
    error = ParameterError("horizon", "must be 1, got {x}", "e.g. {horizon=}100, or {k}")
    assert str(error) == "horizon must be 1, got {x}: e.g. horizon=100, or k"
    assert error.in_options(option, {}) == "--horizon must be 1, got {x}: e.g. --horizon 100, or -k"
    error = ParameterError("domain", "3 counts are too many", "count fewer", whole=True)
    assert str(error) == "3 counts are too many: count fewer"
    assert error.in_options(option, {"domain": "leave {k} out"}) == (
        "3 counts are too many: leave -k out"
    )
    assert ParameterError("k", "must be 1").in_options(option, {"k": "x"}) == "-k must be 1"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.name, again.whole) == (str(error), "domain", True)


def test_the_library_says_which_parameter_is_wrong() -> None:
    for make, name in (
        (lambda: dp.PrefixCount(dp.ZCDP(1), 0), "horizon"),
        (lambda: dp.PrefixCount(dp.ZCDP(1), 9, unit=7), "unit"),
        (lambda: dp.SubstringCount(dp.ZCDP(1), 9, ["a", "b"], 1, every=10), "every"),
        (lambda: dp.SubstringCount(dp.ZCDP(1), 9, ["a", "b"], 30), "max_length"),
        (lambda: dp.KStarCount(dp.ZCDP(1), 9, 5, max_degree=3, k=4), "k"),
        (lambda: dp.choose(9, dp.ZCDP(1), max_state=0), "max_state"),
    ):
        with pytest.raises(ParameterError) as caught:
            make()
        assert caught.value.name == name
