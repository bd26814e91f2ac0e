"""The public vertices of a graph: a number n, for the vertices 0 .. n-1, or distinct texts."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_dpcount.checks import ParameterError, check_texts

MAX_VERTICES = 2**31  # codes of pairs fit 64 bits

Vertices = int | tuple[str, ...]


def check_vertices(vertices: object) -> Vertices:
    """A number of vertices, or a tuple of distinct plain strings; or a TypeError or ValueError."""
    example = 'give the public vertices, e.g. vertices=["ann", "bob", "cem"], or how many there are'
    if isinstance(vertices, int | np.integer) and not isinstance(vertices, bool):
        if not 2 <= vertices <= MAX_VERTICES:
            problem = f"must be from 2 to 2^31, got {vertices!r}"
            raise ParameterError("vertices", problem, example)
        return int(vertices)
    if isinstance(vertices, str | bool):
        problem = f"must be a sequence of str, or a whole number, got {vertices!r}"
        raise TypeError(f"vertices {problem}: {example}")
    names = check_texts("vertices", vertices, "vertex", example)
    if len(names) < 2:
        raise ValueError(f"vertices must be two or more, got {names!r}: {example}")
    return names


def vertex_names(vertices: Vertices) -> tuple[str, ...]:
    """The vertices as text, in their order."""
    return tuple(map(str, range(vertices))) if isinstance(vertices, int) else vertices


def vertex_places(vertices: Vertices) -> Mapping[str, int]:
    """The place of each vertex that has a name, from 0."""
    names = () if isinstance(vertices, int) else vertices
    return {name: place for place, name in enumerate(names)}


def place_of(vertex: object, vertices: Vertices, places: Mapping[str, int]) -> int | None:
    """The place of a vertex, from 0; None for anything else. `places`: `vertex_places` of them."""
    if isinstance(vertices, int):
        number = whole(vertex)
        return number if number is not None and 0 <= number < vertices else None
    return places.get(str.__str__(vertex)) if isinstance(vertex, str) else None


def whole(value: Any) -> int | None:
    """A whole number as an int; None for anything else."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
