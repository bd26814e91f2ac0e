"""Columns as lines of CSV and JSON: what Python's own writers make of the rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_dpcount.commands.files import rendered

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ODD = st.sampled_from(["", " ", '"', ",", "a,b", 'say "a"', "\n", "\r", "a\r\nb", "\\", "é", "\0"])
FLOATS = st.one_of(
    st.floats(),
    st.floats(-1e12, 1e12),
    st.integers(-(2**53), 2**53).map(float),
    st.tuples(st.integers(-(2**53), 2**53), st.integers(0, 60)).map(lambda p: p[0] / 2 ** p[1]),
)
ROWS = st.lists(
    st.tuples(
        st.none() | TEXTS | ODD,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | FLOATS,
        st.none() | ODD,
    ),
    max_size=12,
)
NAMES = ["key", "step", 'a "value"', "é"]
KINDS = [pa.string(), pa.int64(), pa.float64(), pa.string()]


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [*zip(*rows, strict=True)] or [()] * len(NAMES)
    arrays = [pa.array(cells, kind) for cells, kind in zip(columns, KINDS, strict=True)]
    # In two pieces, of which one begins within an array.
    whole = pa.table(arrays, names=NAMES)
    return pa.concat_tables([whole[:1], whole[1:]])


@settings(deadline=None)
@given(ROWS)
@example([(None, None, None, None)])
@example([("", 0, -0.0, ""), ("a", 1, 1e16, None), ("a", 1, 1e22, "b"), ("a", 1, 5e-324, "b")])
def test_lines_of_csv_are_pythons(rows: list[tuple[Any, ...]]) -> None:
    expected = "".join(f"{line}\n" for line in rendered.csv_lines(rows)).encode()
    assert b"".join(rendered.csv_rows(table_of(rows), {})) == expected


@settings(deadline=None)
@given(ROWS)
@example([("a", 1, np.inf, "b")])
@example([("a", None, None, None), ("a", 1, 0.5, "b"), ("a", 1, np.nan, "b")])
@example([(None, 1, None, None)])
def test_lines_of_json_are_pythons(rows: list[tuple[Any, ...]]) -> None:
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False)

    def expected() -> bytes:
        objects = (dict(zip(NAMES, row, strict=True)) for row in rows)
        return "".join(f"{encoder.encode(one)}\n" for one in objects).encode()

    def bytes_or_error(write: Callable[[], bytes]) -> object:
        try:
            return write()
        except ValueError:
            return ValueError

    made = bytes_or_error(lambda: b"".join(rendered.json_rows(table_of(rows), {})))
    assert made == bytes_or_error(expected)


@pytest.mark.parametrize("agrees", [True, False])
def test_numbers_are_shown_as_python_shows_them(
    agrees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all sizes, and where the shortest digits are hardest to find; by any version of Arrow."""
    assert rendered._arrow_agrees()
    monkeypatch.setattr(rendered, "_arrow_agrees", lambda: agrees)
    rng = np.random.default_rng(1)
    powers = np.ldexp(1.0, np.arange(-1074, 1024))
    edges = [powers, np.nextafter(powers, 0), np.nextafter(powers, np.inf)]
    sizes = np.ldexp(rng.random(20_000) + 0.5, rng.integers(-16, 56, 20_000))
    decimals = np.rint(sizes * 1000) / 1000
    dyadic = rng.integers(-(2**53), 2**53, 20_000) / 2.0 ** rng.integers(0, 60, 20_000)
    for numbers in (*edges, sizes, -sizes, decimals, dyadic, np.rint(sizes)):
        assert rendered.floats(pa.array(numbers)).to_pylist() == [*map(repr, numbers.tolist())]


def test_a_version_of_arrow_that_shows_numbers_otherwise_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendered, "_SAMPLES", (*rendered._SAMPLES, 1e10))  # it has an exponent
    rendered._arrow_agrees.cache_clear()
    try:
        assert not rendered._arrow_agrees()
        assert rendered.floats(pa.array([1 / 3, None])).to_pylist() == [repr(1 / 3), None]
    finally:
        rendered._arrow_agrees.cache_clear()


def test_dictionaries_of_numbers_are_shown_as_numbers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they are as those of the slice before, other ones in their place, or many."""
    known: rendered.Known = {}
    for most in (1 << 20, 2):
        monkeypatch.setattr(rendered, "_REMEMBERED", most)
        for first in (0, 1, 1, 2):
            numbers = pa.array([0.1 * n for n in range(first, 7 * first + 3)])
            for some in (numbers, numbers[1:], numbers[:2], numbers[:2]):
                places = pa.array([0, 1, 1, 0])
                texts = pa.array(["a", "b", "c", "d"])
                made, plain = (
                    pa.table({"key": texts, "x": column})
                    for column in (
                        pa.DictionaryArray.from_arrays(places, some),
                        some.take(places),
                    )
                )
                for write in (rendered.csv_rows, rendered.json_rows):
                    assert b"".join(write(made, known)) == b"".join(write(plain, {}))
            del numbers, some
    assert known
