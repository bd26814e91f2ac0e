"""The table of docs/audit.md, from what was found."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from beam_dpcount.budget.budgets import ZCDP
from beam_dpcount.errors import WeakBudgetWarning
from tests.audit import counters, pipelines, selected

PAGE = Path(__file__).resolve().parents[2] / "docs" / "audit.md"
_OPEN, _CLOSE = "<!-- {0} -->\n", "<!-- /{0} -->"

Found = counters.Found | pipelines.Found | selected.Found


def jobs() -> list[tuple[Callable[..., Found | None], tuple[Any, ...]]]:
    """All rows, as calls: those that take long first."""
    local = [(pipelines.audited_local, (name,)) for name in pipelines.LOCAL]
    made = [(pipelines.audited, (name,)) for name in pipelines.CASES]
    every = [(counters.audited, (name, b)) for name in counters.KINDS for b in counters.BUDGETS]
    slow = [job for job in every if counters.KINDS[job[1][0]].share < 1]
    lone = [(selected.audited, (name,)) for name in selected.CASES]
    return [*slow, *made, *local, *lone, *(job for job in every if job not in slow)]


def quiet() -> None:
    """For a worker: budgets are weak on purpose, so that fewer trials tell."""
    warnings.simplefilter("ignore", WeakBudgetWarning)


def of_counters(found: Sequence[Found]) -> str:
    head = [
        "| mechanism | budget | noise | trials | exact loss | known statistic | mu | classifier |",
        "|---|---|---|---|---|---|---|---|",
    ]
    order = {(name, b): i for i, (name, b) in enumerate(_every())}
    rows = [row for row in found if isinstance(row, counters.Found)]
    rows.sort(key=lambda row: order[row.name, row.kind])
    return "\n".join([*head, *("| " + " | ".join(_cells(row)) + " |" for row in rows)])


def _every() -> Iterator[tuple[str, Any]]:
    for name in counters.KINDS:
        for budget in counters.BUDGETS:
            yield name, budget


def _cells(row: counters.Found) -> list[str]:
    unit = "rho" if isinstance(row.kind, ZCDP) else "epsilon"
    spent = "delta" if "Gaussian" in row.noise and unit == "epsilon" else unit
    mu = "" if row.mu is None or row.law_mu is None else f"{row.mu:.3f} of {row.law_mu:.3f}"
    return [
        row.name,
        str(row.kind),
        row.noise,
        f"{row.trials:,}",
        f"{_share(row.exact)} of {spent}",
        f"{unit} > {row.known:.3f}",
        mu,
        f"{unit} > {row.learned:.3f}",
    ]


def _share(exact: float) -> str:
    """Rounded down, so that only what is 1 reads as 1."""
    return f"{int((exact + 1e-9) * 1e4) / 1e4:.4f}"


def of_transforms(found: Sequence[Found]) -> str:
    head = [
        "| transform | budget | trials | neighbours found | known statistic | mu | classifier |",
        "|---|---|---|---|---|---|---|",
    ]
    names = [*pipelines.CASES, *pipelines.LOCAL]
    rows = [row for row in found if isinstance(row, pipelines.Found)]
    rows.sort(key=lambda row: names.index(row.name))
    lines = [
        f"| {row.name} | rho = {row.rho:g} | {row.trials:,} "
        f"| mu = {row.pair:.2f} of {(2 * row.rho) ** 0.5:.2f} | rho > {row.known:.3f} "
        f"| {row.mu:.3f} of {row.pair:.2f} | rho > {row.learned:.3f} |"
        for row in rows
    ]
    return "\n".join([*head, *lines])


def of_selected(found: Sequence[Found]) -> str:
    head = [
        "| alone in its keys | delta for keys | trials | shown | proved |",
        "|---|---|---|---|---|",
    ]
    names = list(selected.CASES)
    rows = [row for row in found if isinstance(row, selected.Found)]
    rows.sort(key=lambda row: names.index(row.name))
    lines = [
        f"| {row.name} | {selected.DELTA:g} | {row.trials:,} | {row.shown:,} "
        f"| delta > {row.least:.4f} |"
        for row in rows
    ]
    return "\n".join([*head, *lines])


def tables(found: Sequence[Found]) -> dict[str, str]:
    made = {"counters": of_counters, "transforms": of_transforms, "selected": of_selected}
    return {name: table(found) for name, table in made.items()}


def written(page: str, name: str, table: str) -> str:
    """A page with the rows of a table in place of those that it had of the same mechanisms."""
    before, rest = page.split(_OPEN.format(name))
    old, after = rest.split(_CLOSE.format(name))
    head, rows = table.splitlines()[:2], table.splitlines()[2:]
    anew = {_name(row) for row in rows}
    order = [*counters.KINDS, *pipelines.CASES, *pipelines.LOCAL, *selected.CASES]
    kept = [row for row in old.splitlines()[2:] if _name(row) in {*order} - anew]
    lines = sorted([*kept, *rows], key=lambda row: order.index(_name(row)))
    return before + _OPEN.format(name) + "\n".join([*head, *lines, _CLOSE.format(name)]) + after


def _name(row: str) -> str:
    return row.split(" | ")[0].strip("| ")


def shown(page: str, name: str) -> list[list[str]]:
    """The rows of a table in a page, without its head."""
    table = page.split(_OPEN.format(name))[1].split(_CLOSE.format(name))[0]
    return [re.split(r" \| ", line.strip("| ")) for line in table.splitlines()[2:]]
