"""Every mechanism and every transform has a theorem, and what the tables name is there."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import apache_beam as beam
import pytest

from beam_dpcount import mechanisms, rows
from beam_dpcount.budget.costs import PureCost
from beam_dpcount.mechanisms import Mechanism, SquareRoot
from beam_dpcount.mechanisms.doubles import two_product
from tests.public import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
PROOFS = ROOT / "docs" / "proofs"


def page(name: str) -> str:
    return (PROOFS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def made_of(module: object, names: list[str], kind: type) -> set[str]:
    found = {name: getattr(module, name) for name in names}
    return {n for n, each in found.items() if isinstance(each, type) and issubclass(each, kind)}


def test_every_transform_has_a_theorem() -> None:
    text = page("counters.md")
    free = set(re.findall(r"`(\w+)`", text.split("**Lemma 1a")[1].split("\n## ")[0]))
    table = set(re.findall(r"`(\w+)`", section(text, "Which theorem is whose")))
    public = {n for n, x in PUBLIC.items() if isinstance(x, type)}
    there = {n for n in public if issubclass(PUBLIC[n], beam.PTransform)} | made_of(
        rows, rows.__all__, beam.PTransform
    )
    assert len(there) > 25
    assert there <= free | table
    assert not there & free & table


def test_every_mechanism_has_a_proof() -> None:
    """Under a heading of its own, or of those it is proved with."""
    proved = {
        **dict.fromkeys(("SlidingBLT", "CombBLT", "DecayedBLT"), "sliding.md"),
        "SmoothLaplace": "trees.md",
    }
    proved |= dict.fromkeys(("SingleSteps", "Differences"), "sliding.md")
    proved |= dict.fromkeys(("ProfiledBLT", "Endless", "FadedBLT"), "real_encoders.md")
    headings = "\n".join(
        line
        for path in PROOFS.glob("*.md")
        for line in path.read_text().splitlines()
        if line[:1] == "#"
    )
    kinds = made_of(mechanisms, mechanisms.__all__, object) - {"Mechanism"}
    assert {kind.__name__ for kind in mechanisms.ALL} <= kinds
    for name in kinds:
        known = re.search(rf"\b{name}\b", headings) or name in page(proved[name])
        assert known, name
        of = getattr(mechanisms, name)
        assert issubclass(of, Mechanism) or name in ("Sparse", "Unbounded")


def test_tables_name_tests_that_exist() -> None:
    here = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    slack = section(page("noise.md"), "Numerical slack")
    named = re.findall(r"`(test_\w+)`", slack + page("selection.md") + page("people.md"))
    assert len(named) > 35
    assert set(named) <= here
    lines = [line for line in slack.splitlines() if line.startswith("| ")][1:]
    assert all(re.search(r"`test_\w+` \|$", line) for line in lines)


def test_costs_are_rounded_up() -> None:
    """By the next float, where the float that is nearest lies below."""
    for third in (Fraction(1, 3), Fraction(2, 7), Fraction(1, 10**9 + 7), Fraction(5, 11)):
        assert PureCost(third, Fraction(10)).epsilon_at(1e-6) >= third


@pytest.mark.parametrize("workload", [{}, {"momentum": 0.9}, {"momentum": 0.5, "decay": 0.9}])
@pytest.mark.parametrize("horizon", [1, 100, 1 << 14, 1 << 20])
def test_norms_of_the_square_root_are_rounded_up(horizon: int, workload: dict[str, float]) -> None:
    mechanism = SquareRoot(horizon, **workload)
    r = mechanism._r.tolist()
    squares = [part for value in r for part in two_product(value, value)]  # exact, in two floats
    exact = math.fsum(squares)
    assert exact < mechanism.l2_sensitivity_squared < exact * (1 + 2e-9)
    assert math.fsum(r) < mechanism.l1_sensitivity
