"""A mechanism is one file and one entry: that of CONTRIBUTING.md does what any other does."""

from __future__ import annotations

import ast
import math
import pickle
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.budget.costs import PureCost
from beam_dpcount.counters.choose import resolve
from beam_dpcount.counters.sliding import difference_variance, difference_variances
from beam_dpcount.mechanisms import Mechanism
from beam_dpcount.states.codecs import StateCodec
from tests.scripted import random_script

ROOT = Path(__file__).resolve().parents[1]
CODE = re.search(
    r"^```python\n(.*?class \w+\(Forest\).*?)^```",
    (ROOT / "CONTRIBUTING.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)
BUDGETS = (dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6), dp.ZCDP(0.5))


def made() -> type[Any]:
    """The class in CONTRIBUTING.md, in a module of its own, so that it pickles."""
    assert CODE is not None
    module = ModuleType("restarted")
    sys.modules["restarted"] = module
    exec(compile(CODE[1], "CONTRIBUTING.md", "exec"), module.__dict__)
    return module.Restarted  # type: ignore[no-any-return]


Restarted = made()


@dataclass(frozen=True)
class Early(Restarted):  # type: ignore[misc, valid-type]
    """One that says to draw noise early, and what to take where that is not safe."""

    early: bool = True
    quick = 500

    @property
    def draws_early(self) -> bool:
        return self.early

    def replay_safe(self) -> Early:
        return replace(self, early=False)


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanisms, "ALL", (*mechanisms.ALL, Restarted, Early))


@pytest.mark.parametrize("horizon", [1, 2, 9, 30, 100])
def test_what_it_says_of_itself_is_so(horizon: int) -> None:
    mechanism = Restarted(horizon)
    encoder, decoder = mechanism.encoder(horizon), mechanism.decoder(horizon)
    assert np.array_equal(decoder @ encoder, np.tri(horizon))
    assert mechanism.l1_sensitivity == encoder.sum(axis=0).max()
    assert mechanism.l2_sensitivity_squared == (encoder**2).sum(axis=0).max()
    norms = (decoder**2).sum(axis=1)
    assert [mechanism.row_norm2(t) for t in range(1, horizon + 1)] == norms.tolist()
    assert mechanism.max_row_norm2() == norms.max()
    assert mechanism.mean_row_norm2() == pytest.approx(norms.mean())
    gram = encoder.T @ encoder
    lags = [max(np.diagonal(gram, lag).max() for lag in range(d, horizon)) for d in range(horizon)]
    assert all(b >= least for b, least in zip(mechanism.lag_bounds(horizon), lags, strict=True))


@pytest.mark.parametrize("dimension", [None, 3])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_it_counts(budget: Any, dimension: int | None) -> None:
    counter = dp.calibrate(Restarted(50), budget, dimension=dimension)
    xs = np.random.default_rng(1).integers(0, 2, (50, 3) if dimension else 50)
    released = counter.release(xs, random_script(50, dimension))
    state, noise, codec = counter.init(), random_script(50, dimension), StateCodec(counter)
    for t, x in enumerate(xs, start=1):
        state, value = counter.step(codec.decode(codec.encode(state)), x, noise)
        assert np.array_equal(value, released[t - 1])
        assert len(state) <= counter.state_size
        assert counter.stddev_at(state) == pytest.approx(math.sqrt(counter.variance(t)))
    assert pickle.loads(pickle.dumps(counter)) == counter


@pytest.mark.parametrize("dimension", [None, 3])
def test_it_starts_late_by_the_contracts_default(dimension: int | None) -> None:
    mechanism, noise = Restarted(20), random_script(20, dimension)
    xs = np.ones((20, 3) if dimension else 20, dtype=np.int64)
    xs[:13] = 0
    released = mechanism.release(xs, noise)
    state = mechanism.after(13, noise, dimension)
    for t in range(13, 20):
        state, value = mechanism.step(state, xs[t], noise)
        assert np.array_equal(value, released[t])


def test_differences_go_by_its_own_products() -> None:
    mechanism = Restarted(90)
    for lag in (1, 4, 9, 40):
        s = np.arange(1, 91 - lag)
        assert np.array_equal(mechanism.products(s, lag), Mechanism.products(mechanism, s, lag))
    counter = dp.calibrate(Restarted(10**6), dp.ZCDP(0.5))  # no matrix holds its decoder
    terms = counter.mechanism.row_norm2(5000) + counter.mechanism.row_norm2(4000) - 2 * 4
    assert difference_variance(counter, 5000, 1000) == counter.law.variance * terms
    base = dp.calibrate(mechanisms.Unbounded(Restarted), dp.ZCDP(0.5))
    assert difference_variances(base, np.array([10**5]), 100) > 0


@pytest.mark.usefixtures("entry")
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_it_is_chosen_from(budget: Any) -> None:
    table = dp.choose(300, budget)
    rows = {row.mechanism.name: row for row in table.rows}
    counter = rows["Restarted"].counter
    assert rows["Restarted"].max_stddev == math.sqrt(counter.max_variance())
    assert rows["Early"].counter.mechanism == Early(300)
    for replays in (False, True):
        safe = {row.mechanism for row in dp.choose(300, budget, replays=replays).rows}
        assert Early(300, early=not replays) in safe
        assert resolve("Early", 300, budget, replays=replays) == Early(300, early=not replays)
        assert resolve(Restarted, 300, budget, replays=replays) == Restarted(300)
    assert ("Early", "slow to calibrate") in dp.choose(501, budget).not_listed


def test_transforms_take_it() -> None:
    for path in ("streaming", "bounded"):
        count = dp.PrefixCount(dp.PureDP(1), horizon=300, mechanism=Early, path=path)
        assert count.counter.mechanism == Early(300, early=path == "bounded")


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_it_is_paid_from_a_ledger_and_accounted_for(budget: Any) -> None:
    share = dp.Ledger(budget).share(0.5, "half")
    counter = dp.calibrate(Restarted(100), share.claim("mine"))
    (cost,) = counter.costs()
    delta = budget.delta if isinstance(budget, dp.ApproxDP) else 1e-6
    assert counter.epsilon_at(delta) <= share.ledger.epsilon_at(delta) * (1 + 1e-9)
    assert isinstance(cost, PureCost) == isinstance(budget, dp.PureDP)
    pytest.importorskip("dp_accounting")
    assert counter.dp_event(zcdp=True) is not None


@pytest.mark.parametrize(
    "around", [mechanisms.Unbounded(Restarted), mechanisms.Sparse(4, 9, Restarted)], ids=str
)
def test_it_counts_in_others(around: Any) -> None:
    counter = dp.calibrate(around, dp.PureDP(1.0))
    xs = np.random.default_rng(2).integers(0, 2, 80)
    state, noise, codec = counter.init(), random_script(400), StateCodec(counter)
    released = counter.release(xs, random_script(400))
    for x, value in zip(xs.tolist(), released.tolist(), strict=True):
        state, stepped = counter.step(codec.decode(codec.encode(state)), x, noise)
        assert stepped == value


def test_counters_and_budgets_name_no_mechanism() -> None:
    """But for the tree of one item that a total of Unbounded is."""
    names = {kind.__name__ for kind in mechanisms.ALL}
    named = set()
    for room in ("counters", "budget"):
        for path in (ROOT / "beam_dpcount" / room).glob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            used = {node.id for node in nodes if isinstance(node, ast.Name)} & names
            named |= {(path.name, name) for name in used}
    assert named == {("unbounded.py", "BinaryTree")}
