"""One table of arguments: text is read alike at every door, and what doors show follows from it."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest

from beam_dpcount import rows
from beam_dpcount.arguments import groups, kinds, texts
from beam_dpcount.arguments.argument import Argument, parsed
from beam_dpcount.arguments.table import ARGUMENTS, GROUPS, applying
from beam_dpcount.checks import ParameterError
from beam_dpcount.commands import count, graph, histogram, sequences, ticks

TRANSFORMS = [getattr(rows, name) for name in rows.__all__ if name.endswith("Rows")]
each_transform = pytest.mark.parametrize("kind", TRANSFORMS)


# Text becomes a value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (kinds.WHOLE, "20_000", 20_000),
        (kinds.WHOLE, "1e6", 1_000_000),
        (kinds.WHOLE, " 7 ", 7),
        (kinds.POSITIVE, "1e-6", 1e-6),
        (kinds.POSITIVE, "1_000.5", 1000.5),
        (kinds.NUMBER, "-20", -20.0),
        (kinds.SHARE, "1e-6", 1e-6),
        (kinds.DURATION, "1h", Fraction(3600)),
        (kinds.DURATION, "1_500", Fraction(1500)),
        (kinds.DURATION, "0.5s", Fraction(1, 2)),
        (kinds.TEXTS, ["a", 7], ["a", "7"]),
        (kinds.BOUNDS, ["-1", 5], (-1.0, 5)),
        (kinds.MECHANISM, "binarytree", "BinaryTree"),
        (kinds.NAME, 7, "7"),
        (kinds.WHOLES, ["1", "2"], [1, 2]),
    ],
)
def test_text_is_a_value(kind: kinds.Kind, text: Any, value: Any) -> None:
    read = Argument("x", kind, "").read(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (kinds.WHOLE, "1.5"),
        (kinds.WHOLE, "much"),
        (kinds.WHOLE, "1__0"),
        (kinds.WHOLE, "_1"),
        (kinds.WHOLE, True),
        (kinds.WHOLE, ["1"]),
        (kinds.POSITIVE, "0"),
        (kinds.POSITIVE, "inf"),
        (kinds.POSITIVE, "nan"),
        (kinds.POSITIVE, "1e400"),
        (kinds.SHARE, "1"),
        (kinds.SHARE, 1),
        (kinds.NUMBER, "1e999"),
        (kinds.DURATION, "1 fortnight"),
        (kinds.DURATION, "-1h"),
        (kinds.DURATION, "1e-7"),
        (kinds.TEXTS, "a"),
        (kinds.TEXTS, [True]),
        (kinds.BOUNDS, [1, 0]),
        (kinds.BOUNDS, "0 1"),
        (kinds.SWITCH, "yes"),
        (kinds.MECHANISM, "Smooth"),
        (kinds.TEXT, 5),
    ],
)
def test_what_has_no_value_is_refused(kind: kinds.Kind, given: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        Argument("x", kind, "", example="7").read(given)
    assert str(caught.value)
    assert caught.value.name == "x"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1_700_000_000", Fraction(1_700_000_000)),
        ("0.5", Fraction(1, 2)),
        ("1970-01-01T01:00:00", Fraction(0)),
        ("1970-01-01T01:00:00Z", Fraction(3600)),
        (5, 5),
    ],
)
def test_a_moment_is_seconds_or_iso_in_the_time_zone(text: Any, seconds: Any) -> None:
    assert groups.moment("start", text, "Europe/Paris") == seconds


def test_a_refusal_shows_the_value_and_what_to_do() -> None:
    (one,) = parsed("people", "per_user K: whole, people, example=5\n    the most rows")
    with pytest.raises(ParameterError) as caught:
        one.read("x")
    assert str(caught.value) == "per_user must be a whole number, got 'x': give e.g. per_user=5"
    told = caught.value.in_options(lambda name: f"--{name.replace('_', '-')}", {})
    assert told == "--per-user must be a whole number, got 'x': give e.g. --per-user 5"


# The table


def test_a_count_takes_an_argument_once() -> None:
    for words in (
        "fields elements numbers people thinned rejects calibrated run",
        "fields ticks metrics people select calibrated run",
        "files elements items several people calibrated run",
        "files ticks numbers several people select truth calibrated run",
    ):
        names = [one.name for one in applying(words)]
        assert len(set(names)) == len(names)


def test_the_table_speaks_of_arguments_that_it_has() -> None:
    known = {one.name for one in ARGUMENTS}
    for one in ARGUMENTS:
        assert one.group in GROUPS
        assert set(re.findall(r"\{(\w+)=?\}", one.help)) <= known | {"column"}, one
        assert one.help, one
        if one.example:
            one.read(one.example.split() if one.kind is kinds.BOUNDS else one.example)


def test_no_file_of_the_room_imports_beam() -> None:
    program = (
        "import sys, beam_dpcount.arguments.table, beam_dpcount.arguments.groups, "
        "beam_dpcount.arguments.metrics; assert 'apache_beam' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_what_replays_do_not_depend_on_is_listed() -> None:
    """All else keeps the noise of two runs apart: an argument that is wrongly here repeats it."""
    tasks = [count.Count, ticks.Ticks, histogram.Histogram, sequences.Sequences, graph.Graph]
    taken = [one for task in tasks for one in task.parser().arguments]
    assert {one.name for one in taken if not one.counted} == {
        *("output", "output_format", "overwrite", "plot", "plot_keys", "report", "rejected"),
        *("show_truth", "show_header", "account", "allow_public", "check", "dry_run", "verbose"),
        *(
            "top",
            "all",
            "min_count",
            "until",
            "path",
            "memory",
            "secret_env",
            "secret_file",
            "alarm",
            "state",
            "delay",
            "save_plan",
        ),
    }


# Rows


@each_transform
def test_a_signature_and_its_help_have_every_argument(kind: Any) -> None:
    signature = inspect.signature(kind)
    assert {*signature.parameters} == {one.name for one in kind.arguments}
    assert "self" in inspect.signature(kind.__init__).parameters
    text = pydoc.plain(pydoc.render_doc(kind))
    for one in kind.arguments:
        parameter = signature.parameters[one.name]
        assert parameter.annotation is not inspect.Parameter.empty
        assert (parameter.default is inspect.Parameter.empty) == one.required
        assert re.search(rf"\b{one.name}: ", text), one.name
    assert "Guarantee:" in text.split("Args:")[1]


@each_transform
def test_beam_yaml_reads_every_argument(kind: Any) -> None:
    pytest.importorskip("docstring_parser")  # of the extra yaml
    from apache_beam.yaml.yaml_provider import InlineProvider

    schema = InlineProvider.config_schema_from_callable(kind)
    assert {field.name for field in schema.fields} == {one.name for one in kind.arguments}
    assert all(field.description for field in schema.fields)


@each_transform
def test_a_misspelt_argument_meets_the_one_that_was_meant(kind: Any) -> None:
    with pytest.raises(TypeError, match="takes no argument 'pre_user': did you mean per_user"):
        kind("page", pre_user=3)
    name = next(one.name for one in kind.arguments if one.required)
    with pytest.raises(TypeError, match=f"{kind.__name__}: missing a required argument: {name!r}"):
        kind(rho=1)


# Metrics and views as text


NAMES = ("count", "people", "mean", "quantiles", "rate", "items", "sum")


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("count", "count", []),
        ("count()", "count", []),
        (" mean ( delay , -20, 180 ) ", "mean", ["delay", "-20", "180"]),
        ("rate(level = ERROR)", "rate", [("level", "ERROR")]),
        ("rate(state = not found)", "rate", [("state", "not found")]),
        ("items(action, 'a, b', \"it's\", 'it''s')", "items", ["action", "a, b", "it's", "it's"]),
        ("rate('user id' = '=')", "rate", [("user id", "=")]),
        ("items(action, '')", "items", ["action", ""]),
        ("mean(delay, high=5, low=0)", "mean", ["delay", ("high", "5"), ("low", "0")]),
    ],
)
def test_a_metric_is_read(text: str, name: str, arguments: list[Any]) -> None:
    found = texts.metric(text, NAMES)
    shown = [one.value if one.name is None else (one.name, one.value) for one in found.arguments]
    assert (found.name, shown) == (name, arguments)
    for one in found.arguments:
        assert text[one.column - 1 :].startswith(("'", '"', (one.name or one.value)[:1]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "column 1 of '': expected the name of a metric"),
        ("mena(delay)", "column 1 of 'mena(delay)': unknown name 'mena': did you mean mean?"),
        ("mean(delay", "column 11 of 'mean(delay': expected a comma or )"),
        ("mean(delay,, 5)", "column 12 of 'mean(delay,, 5)': expected a value, got ','"),
        ("mean(delay) 5", "column 13 of 'mean(delay) 5': expected the end, got '5'"),
        ("mean(low=1, low=2)", "column 6 of 'mean(low=1, low=2)': low is given twice: give it"),
        ("rate(level=)", "column 12 of 'rate(level=)': expected a value, got ')'"),
        ("rate('level)", 'column 6 of "rate(\'level)": the quote does not end'),
        ("(mean)", "column 1 of '(mean)': expected the name of a metric, got '('"),
    ],
)
def test_a_mistake_in_a_metric_has_its_column(text: str, said: str) -> None:
    with pytest.raises(ParameterError) as caught:
        texts.metric(text, NAMES)
    assert str(caught.value).startswith(f"metric {said}")


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("so-far", ("so-far", None)),
        (" each ", ("each", None)),
        ("last 7", ("last", "7")),
        ("restart 1d", ("restart", "1d")),
    ],
)
def test_a_view_is_read(text: str, view: tuple[str, str | None]) -> None:
    assert texts.view(text) == view


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lats 7", "column 1 of 'lats 7': unknown name 'lats': did you mean last?"),
        ("last", "column 5 of 'last': expected a length, such as last 7 or last 1d"),
        ("each 7", "column 6 of 'each 7': expected the end, got '7'"),
    ],
)
def test_a_mistake_in_a_view_has_its_column(text: str, said: str) -> None:
    with pytest.raises(ParameterError) as caught:
        texts.view(text)
    assert str(caught.value).startswith(f"view {said}")
