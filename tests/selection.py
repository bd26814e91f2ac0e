"""Which tests `make unit`, `make test` and CI leave to `make test-all`."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence, Set
from types import CodeType, FunctionType, ModuleType
from typing import Any

# What starts a pipeline or a process, by the names under which tests call it.
STARTERS = {"Pipeline", "TestPipeline", "Popen", "main", "subprocess"}
OURS = ("tests", "benchmarks", "engines")


def cover(cases: Sequence[Set[Hashable]]) -> set[int]:
    """The numbers of few cases that have each value of all of them at least once.

    The same ones in every run: of those with the most values still needed, one whose values were
    used the least.
    """
    needed: set[Hashable] = set().union(*cases)
    used: Counter[Hashable] = Counter()
    kept: set[int] = set()
    while needed:
        worth = [(len(case & needed), -sum(used[value] for value in case)) for case in cases]
        best = worth.index(max(worth))
        kept.add(best)
        used.update(cases[best])
        needed -= cases[best]
    return kept


def part_of(text: str) -> tuple[int, int]:
    """K/N as two numbers, K one of 0, ..., N - 1."""
    part, parts = map(int, text.split("/"))
    if not 0 <= part < parts:
        raise ValueError(text)
    return part, parts


def is_in(part: tuple[int, int], name: str) -> bool:
    """Whether the case of this name is in a part: it is in one of N, and the same in every run."""
    return zlib.crc32(name.encode()) % part[1] == part[0]


def starts(thing: Any, known: dict[int, bool]) -> bool:
    """Whether a function or class is one of STARTERS, or of ours and one that calls one."""
    if isinstance(thing, FunctionType | type) and thing.__name__ in STARTERS:
        return True
    if not str(getattr(thing, "__module__", "")).startswith(OURS):
        return False
    if id(thing) not in known:
        known[id(thing)] = False  # while it is looked into
        known[id(thing)] = any(starts(part, known) for part in _parts(thing)) or bool(
            isinstance(thing, FunctionType) and STARTERS & {*_names(thing.__code__)}
        )
    return known[id(thing)]


def _parts(thing: Any) -> Iterator[Any]:
    """What may be called: members, defaults, what is wrapped or closed over, globals named."""
    if isinstance(thing, type):
        yield from vars(thing).values()
    if hasattr(thing, "hypothesis"):
        yield thing.hypothesis.inner_test
    if hasattr(thing, "__wrapped__"):
        yield thing.__wrapped__
    if not isinstance(thing, FunctionType):
        return
    yield from (*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values())
    for cell in thing.__closure__ or ():
        yield cell.cell_contents
    names = {*_names(thing.__code__)}
    for name in names & thing.__globals__.keys():
        found = thing.__globals__[name]
        yield found
        if isinstance(found, ModuleType) and found.__name__.startswith(OURS):
            yield from (vars(found)[inner] for inner in names & vars(found).keys())


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
