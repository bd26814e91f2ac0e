"""Comparisons: every experiment runs, says the published figures, and writes a table and pictures.

One statistical test: a false alarm is a deviation of 5 standard deviations, below 1e-6.
"""

import contextlib
import csv
import io
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.image import imread

import beam_dpcount as dp
from pipelines import compare

Table = list[dict[str, str]]
WINDOW = {"mean_absolute_error", "standard_error", "p10", "p90", "exact_stddev"}
# name -> columns of its CSV, and the endings of its pictures
WRITTEN: dict[str, tuple[set[str], set[str]]] = {
    "event-dp": (
        {"horizon", "mechanism", "first_step", "last_step"} | WINDOW,
        {"-1000", "-1000-without-simple1", "-1000-blocks"},
    ),
    "variance-over-time": ({"mechanism", "step", "variance"}, {"", "-first"}),
    "variance-against-horizon": ({"mechanism", "horizon", "largest_variance"}, {""}),
    "arity": ({"horizon", "tree", "arity", "error"}, {"-1000", "-1000000"}),
    "members": (
        {"budget", "mechanism", "noise", "horizon", "max_stddev", "mean_stddev", "state_size"},
        {"-pure", "-approximate", "-zcdp"},
    ),
}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The directory of a quick run of everything, and the lines it printed."""
    directory = tmp_path_factory.mktemp("compare") / "new" / "out"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        compare.main(["--quick", "--directory", str(directory)])
    return directory, printed.getvalue().splitlines()


def table(output: tuple[Path, list[str]], name: str) -> Table:
    with open(output[0] / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def line(output: tuple[Path, list[str]], name: str) -> str:
    (found,) = [text for text in output[1] if text.startswith(f"{name}: ")]
    return found


def test_every_experiment_is_tested() -> None:
    assert set(WRITTEN) == set(compare.EXPERIMENTS)


@pytest.mark.parametrize("name", WRITTEN)
def test_files_and_line(output: tuple[Path, list[str]], name: str) -> None:
    columns, endings = WRITTEN[name]
    rows = table(output, name)
    assert set(rows[0]) == columns
    assert all(value != "" for row in rows for value in row.values())
    pictures = {output[0] / f"{name}{ending}.png" for ending in endings}
    assert set(output[0].glob(f"{name}*.png")) == pictures
    for picture in pictures:
        pixels = imread(picture)
        assert pixels.shape[:2] == (900, 1500)
        coloured = np.ptp(pixels[..., :3], axis=2) > 0.3  # curves, not the white, grey and black
        assert 0.001 < coloured.mean() < 0.2
    for path in [*pictures, output[0] / f"{name}.csv"]:
        assert str(path) in line(output, name)


def test_one_line_each(output: tuple[Path, list[str]]) -> None:
    assert [text.split(":")[0] for text in output[1]] == list(compare.EXPERIMENTS)


def test_measured_errors_have_the_calibrated_scale(output: tuple[Path, list[str]]) -> None:
    """Of a mechanism whose noise is fresh at each step, so that all 25,000 errors are independent.

    A Laplace draw's mean absolute error is 1/sqrt(2) of its standard deviation, and the standard
    deviation of its absolute value as much. A vector that one event can fill would be 25 times off.
    """
    rows = [row for row in table(output, "event-dp") if row["mechanism"] == "Simple1"]
    ratios = [float(row["mean_absolute_error"]) / float(row["exact_stddev"]) for row in rows]
    tolerance = 5 / np.sqrt(25_000)
    for wrong in (2 / 3, 3 / 2):
        assert np.mean(ratios) * np.sqrt(2) != pytest.approx(wrong, rel=tolerance)
    assert np.mean(ratios) * np.sqrt(2) == pytest.approx(1, rel=tolerance)
    assert float(rows[0]["exact_stddev"]) == pytest.approx(1000 * np.sqrt(2), rel=1e-4)
    assert [int(row["last_step"]) for row in rows] == list(range(10, 1001, 10))


def test_exact_errors_of_the_time_bounded_mechanisms(output: tuple[Path, list[str]]) -> None:
    rows = table(output, "event-dp")
    last = {row["mechanism"]: float(row["exact_stddev"]) for row in rows}
    assert set(last) == {
        "Simple1",
        "Simple2",
        "BinaryTree",
        "TwoLevel, B = 10",
        "TwoLevel, B = 25",
        "TwoLevel, B = 32 (default)",
        "TwoLevel, B = 50",
        "TwoLevel, B = 100",
    }
    # Steps 991 .. 1000, where Simple2 has t draws of scale 1, and TwoLevel 99 + 1 .. 99 + 9 and
    # then 100 draws of scale 2; a draw of scale b has a variance of just below 2 b^2.
    assert last["Simple2"] ** 2 == pytest.approx(2 * 995.5, rel=0.1)
    draws = np.mean([*range(100, 109), 100])
    assert last["TwoLevel, B = 10"] ** 2 == pytest.approx(8 * draws, rel=0.03)


def test_balanced_is_flat_over_time(output: tuple[Path, list[str]]) -> None:
    assert "SmoothBinary, balanced 25 to 25" in line(output, "variance-over-time")
    rows = table(output, "variance-over-time")
    spread = {
        name: np.ptp([float(row["variance"]) for row in rows if row["mechanism"] == name])
        for name in {row["mechanism"] for row in rows}
    }
    assert [name for name, value in spread.items() if value == 0] == ["SmoothBinary, balanced"]
    assert len(rows) == 4 * 250


def test_ratio_of_the_smooth_paper(output: tuple[Path, list[str]]) -> None:
    assert "3.27 x" in line(output, "variance-against-horizon")
    rows = table(output, "variance-against-horizon")
    at = {row["mechanism"]: row["largest_variance"] for row in rows if row["horizon"] == "10400599"}
    assert float(at["BinaryTree"]) == pytest.approx(24 * 23)
    assert float(at["SmoothBinary, balanced"]) == pytest.approx(13 * 13)
    assert {int(row["horizon"]) for row in rows} >= {2, 2**24}


def test_best_arities(output: tuple[Path, list[str]]) -> None:
    said = line(output, "arity")
    assert "best single arity 13, error 170.35" in said
    assert "best single arity 19, error 1142.53" in said
    assert "binary tree 987.60" in said
    assert "binary tree 7908.00" in said
    mixed = {row["error"] for row in table(output, "arity") if row["tree"].startswith("mixed")}
    assert len(mixed) == 2


def test_members_are_those_that_take_the_budget(output: tuple[Path, list[str]]) -> None:
    rows = table(output, "members")
    taking = {
        budget: {row["mechanism"] for row in rows if row["budget"] == budget}
        for budget in ("pure", "approximate", "zcdp")
    }
    every = {kind.__name__ for kind in dp.mechanisms.ALL}
    assert taking["pure"] | taking["zcdp"] <= taking["approximate"] <= every
    assert "SmoothBinary" not in taking["pure"]
    assert "KAry" not in taking["zcdp"]
    assert {row["noise"] for row in rows if row["budget"] == "pure"} == {"DiscreteLaplace"}


def test_only_and_unknown_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--directory", str(tmp_path), "--only"]
    compare.main([*flags, "variance-over-time", "variance-over-time"])
    assert capsys.readouterr().out.count("\n") == 1
    names = ", ".join(compare.EXPERIMENTS)
    with pytest.raises(ValueError, match=f"unknown experiment 'nope': choose from {names}"):
        compare.main([*flags, "variance-over-time", "nope"])
    assert {path.name for path in tmp_path.iterdir()} == {
        "variance-over-time.csv",
        "variance-over-time.png",
        "variance-over-time-first.png",
    }


def test_help_lists_the_experiments() -> None:
    words = compare.arguments().format_help()
    for name, experiment in compare.EXPERIMENTS.items():
        assert name in words
        assert str(experiment.rows.__doc__) in words


def test_directory_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=r"^cannot write to --directory '[^\n]*$"):
            compare.main(["--directory", str(directory)])

    def refused(dir: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    with pytest.raises(ValueError, match=r"Permission denied$"):
        compare.main(["--directory", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_progress_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(compare.progress("ab", "letters")) == ["a", "b"]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(compare.progress("ab", "letters")) == ["a", "b"]
    shown = capsys.readouterr().err
    assert "letters: 1/2" in shown
    assert shown.endswith(" \r")
