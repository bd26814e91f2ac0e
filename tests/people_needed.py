"""The tables of docs/guide/how_many_people.md: python -m tests.people_needed --write renews them.

Their numbers are those of `beam-dpcount errors --want`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from beam_dpcount.commands import errors, sizing
from beam_dpcount.commands import options as opt

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "how_many_people.md"
ROWS_OF_A_PERSON = (1, 5)
METRICS = {
    "count": "count",
    "people": "people",
    "sum, 0 to 1": "sum(x, 0, 1)",
    "mean": "mean(x, 0, 1)",
    "rate": "rate(level = ERROR)",
    "median": "quantiles(x, 0, 1, 0.5)",
}
# Only the errors of counts so far depend on how long the clock is.
VIEWS: tuple[tuple[str, int | None], ...] = (
    ("each", None),
    ("last 7", None),
    ("so-far", 30),
    ("so-far", 365),
    ("so-far", 8760),
)
WANTS = ("5%", "10%")


def needed(metric: str, view: str, ticks: int | None, want: str, rows: int) -> int:
    """How many people, with one row each, of two digits."""
    words = ["--metric", metric, "--view", view, "--people", "1", "--events", "1"]
    words += ["--per-user", str(rows), "--want", want, "--epsilon", "1", "--delta", "1e-6"]
    words += [] if ticks is None else ["--ticks", str(ticks)]
    options = errors.arguments().parse_ours(words)
    people = sizing.Sizing(options).needed(opt.budget_of(options), options.want)
    assert people is not None
    digits = max(math.floor(math.log10(people)) - 1, 0)
    return math.ceil(round(people) / 10**digits) * 10**digits


def table(rows: int) -> str:
    """For at most so many rows of a person."""
    heads = [
        f"{view.replace('-', ' ')}{f', {ticks:,} ticks' if ticks else ''}" for view, ticks in VIEWS
    ]
    lines = [" | ".join(["", *heads]), "|".join(["---"] * (len(heads) + 1))]
    for name, metric in METRICS.items():
        cells = [
            " / ".join(f"{needed(metric, view, ticks, want, rows):,}" for want in WANTS)
            for view, ticks in VIEWS
        ]
        lines.append(" | ".join([name, *cells]))
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def parts(rows: int) -> tuple[str, str]:
    """What stands around a table."""
    return f"<!-- table of {rows} -->\n", "\n<!-- /table -->"


def printed(rows: int) -> str:
    begin, end = parts(rows)
    return PAGE.read_text(encoding="utf-8").split(begin)[1].split(end)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into the page")
    write = parser.parse_args().write
    for rows in ROWS_OF_A_PERSON:
        text = table(rows)
        print(text)
        if write:
            begin, end = parts(rows)
            page = PAGE.read_text(encoding="utf-8")
            page = page.replace(f"{begin}{printed(rows)}{end}", f"{begin}{text}{end}")
            PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
