"""Published claims that do not hold, each by its smallest counterexample: docs/proofs/published.md.

What is compared with is computed here from the definitions; the library's own bounds must cover it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.budget.conversions import gaussian_sigma, zcdp_epsilon
from beam_dpcount.counters.change import ItemsChange
from beam_dpcount.local.learner import column_differences
from beam_dpcount.mechanisms import BinaryTree, KAry, ProfiledBLT, Simple2, SmoothBinary, SquareRoot
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from beam_dpcount.statistics.episodes import Episodes
from beam_dpcount.statistics.graph import Graph
from beam_dpcount.statistics.graph_counts import Edges, HighDegree
from beam_dpcount.statistics.words import Words
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.papers.optimal import mathias_floor, optimal_factorization
from tests.audit import exact as audits

PAGE = Path(__file__).resolve().parents[1] / "docs" / "proofs" / "published.md"


def coefficients(n: int) -> list[Fraction]:
    """f(0) .. f(n-1) of the square root of prefix sums."""
    made = [Fraction(1)]
    for j in range(1, n):
        made.append(made[-1] * Fraction(2 * j - 1, 2 * j))
    return made


def square(vector: Any) -> Any:
    """Its squared L2 norm."""
    return sum(x * x for x in vector)


def added(statistic: Any, stream: Sequence[Any]) -> np.ndarray:
    """What each element adds to each coordinate, shape (steps, coordinates)."""
    memory, rows = statistic.init(), []
    for payload in stream:
        codes, _ = statistic.read(payload)
        memory, additions = statistic.step(memory, codes)
        row = np.zeros(statistic.dimension or 1, dtype=np.int64)
        for place, amount in additions:
            row[place] += amount
        rows.append(row)
    return np.array(rows)


# Claims that do not hold


def printed(t: Any) -> Any:
    """Psi(T) of [FHU22, eq. (4)]."""
    return 1 + np.log((4 * t - 3) / 5) / math.pi


def square_norms(n: int) -> np.ndarray:
    """The squared norms of the square root's columns, for T = 1 .. n: f(0)^2 + .. + f(T-1)^2."""
    f = np.cumprod(np.concatenate([[1.0], 1 - 0.5 / np.arange(1, n)]))
    return np.asarray(np.cumsum(f * f))


def mathias(n: int) -> float:
    """What no factorization of n prefix sums is below: [Mat93, Corollary 3.5]."""
    return math.sqrt(mathias_floor(n))


def test_the_bound_on_prefix_sums() -> None:
    """[FHU22, Theorem 1, eq. (4), Lemma 3]: the proof begins an integral at 1 that begins at 0."""
    t = np.arange(1, 10**6 + 1)
    found = square_norms(len(t))
    assert found[1] == square(coefficients(2)) == 1.25 > printed(2) == 1
    assert (found > printed(t) + 0.137).all()
    assert (found <= 1 + np.log(4 * t - 3) / math.pi + 1e-12).all()
    # Nor is any other factorization within it, up to T = 4.
    assert printed(2) < mathias(2) == pytest.approx(1.0607, abs=1e-4)
    assert optimal_factorization(2).error == pytest.approx(4 / 3, rel=1e-4)
    for n in (1, 2, 3, 4):
        assert math.sqrt(optimal_factorization(n).lower_bound) > printed(n)
    # Later some are: at rho = 1/2 the largest stddev is the product of the norms.
    assert math.sqrt(optimal_factorization(5).error) < printed(5)
    for n, kept in ((5, False), (6, True), (1000, True)):
        best = math.sqrt(dp.calibrate(ProfiledBLT(n), dp.ZCDP(0.5)).max_variance())
        assert (best <= printed(n)) == kept
        assert mathias(n) < best < found[n - 1]


def test_how_far_the_bounds_are_apart() -> None:
    """[FHU22, Figure 2]: from T = 2^5 on the upper one is less than .5 above that of [Mat93]."""
    norms = square_norms(2**20)
    apart = [norms[2**i - 1] - mathias(2**i) for i in range(5, 21)]
    assert apart == sorted(apart)
    assert [round(float(x), 3) for x in (apart[0], apart[4], apart[-1])] == [0.533, 0.58, 0.585]
    last = (44 * math.log(2) + np.euler_gamma + 4 * math.log(2)) / math.pi  # the norm, to O(1/T)
    assert last - mathias(2**44) == pytest.approx(0.585, abs=1e-3)
    # It is drawn with the bound that does not hold.
    assert printed(2**20) - mathias(2**20) == pytest.approx(0.448, abs=1e-3)


def test_a_table_of_errors() -> None:
    """[FHU22, Table 1]: errors are proportional to Psi(T), which is to stand for the norm."""
    norms = square_norms(2**20)
    short = {i: norms[2**i - 1] / printed(2**i) - 1 for i in (5, 10, 16, 20)}
    assert short == pytest.approx({5: 0.070, 10: 0.044, 16: 0.031, 20: 0.026}, abs=5e-4)


def test_a_sum_and_its_integral() -> None:
    """[FHU22, proof of Theorem 3]: a mean of cosecants is at most their integral from 1 to t."""

    def cosecants(n: int) -> float:
        angles = (2 * np.arange(1, n + 1) - 1) * math.pi / (2 * n)
        return float(np.mean(1 / np.sin(angles)))

    for n in (1, 2, 3, 10, 1000):
        assert cosecants(n) > 2 / math.pi * math.log(1 / math.tan(math.pi / (4 * n))) + 0.8
    # It is more, which is what a lower bound needs, and Lemma 6's limit is one of ratios.
    excess = cosecants(10**6) - 2 * math.log(10**6) / math.pi
    assert excess == pytest.approx(2 / math.pi * (np.euler_gamma + math.log(8 / math.pi)), abs=1e-5)


def test_fresh_noise_at_every_step() -> None:
    """[FHU22, Theorem 2]: release t alone costs rho / (S_t S_t), S_t = ||R_t||^2 = ||L_t||^2."""

    def spent(n: int) -> Any:
        sums = itertools.accumulate(float(f) ** 2 for f in coefficients(n))
        return sum(1 / s**2 for s in sums)

    first, both = coefficients(2)[0] ** 2, square(coefficients(2))
    assert 1 / first**2 + 1 / both**2 == Fraction(41, 25)  # of the budget, at T = 2
    assert spent(1024) == pytest.approx(123.7, abs=0.1)
    counter = dp.calibrate(SquareRoot(2), dp.ZCDP(0.5))  # z is drawn once
    assert audits.audit(counter) == []


def test_one_bound_for_all_cuts() -> None:
    """[FHU22, Corollary 1] for single pairs, T = 1: n is not in it, but all pairs' noises are."""
    deviations = 3 * math.sqrt((1 + 1) * math.log(1 + 1) * math.log(6))
    exceeds = math.erfc(deviations / math.sqrt(2))
    assert deviations == pytest.approx(4.73, abs=0.01)
    assert 1 - (1 - exceeds) ** math.comb(600, 2) > 1 / 3


@pytest.mark.parametrize(("values", "published", "found"), [((0, 1), 1, 2), ((-1, 0, 1), 1, 4)])
def test_items_that_are_replaced(values: tuple[int, ...], published: int, found: int) -> None:
    """[FHU22, Corollary 2]: sqrt(b), b = 1, for two items and one step, R = 1."""
    steps = [x for x in itertools.product(values, repeat=2) if square(x) <= 1]
    worst = max(square(np.subtract(x, y)) for x in steps for y in steps)
    assert worst == found > published
    change = ItemsChange(low=min(values), relation="replace_one", max_items=1)
    assert change.norms(Simple2(1), 1, 2)[1] == found


def insertions(n: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """All orders of all sets of pairs that hold the pair (0, 1)."""
    pairs = list(itertools.combinations(range(n), 2))
    for k in range(1, len(pairs) + 1):
        yield from (order for order in itertools.permutations(pairs, k) if (0, 1) in order)


def without(stream: Sequence[Any]) -> list[Any]:
    """The neighbour in which the steps of the pair (0, 1) are empty."""
    return [None if pair == (0, 1) else pair for pair in stream]


def test_the_norm_of_a_change_is_not_that_of_its_image() -> None:
    """[FHU22, Corollary 3]: vertices of degree 2; the change's squared norm is at most 6."""
    statistic = HighDegree(4, 2)
    found = [added(statistic, s) - added(statistic, without(s)) for s in insertions(4)]
    assert max(np.square(d).sum() for d in found) == 6
    # Both ends reach degree 2 by the pair itself, early; without it they do late, in turn.
    steps, late = 600, 440
    far = [(2 * i, 2 * i + 1) for i in range(4, 4 + steps)]  # pairs of their own
    stream = [(0, 2), (1, 3), (0, 1), *far[: late - 4], (0, 4), (1, 5), *far[late:]][:steps]
    long = HighDegree(3 * steps, 2)
    d = (added(long, stream) - added(long, without(stream)))[:, 0]
    assert sorted(d[d != 0]) == [-1, -1, 2]
    f = np.array(list(map(float, coefficients(steps))))
    reached = square(np.convolve(f, d)[:steps])
    assert reached > 6 * square(f)
    spread = long.change("edge").spread(SquareRoot(steps))
    assert reached <= spread.l2_squared <= 8 * square(f) * (1 + 1e-6)


def blocks(stream: str, longest: int) -> dict[tuple[str, int], int]:
    """Which words of up to so many letters end at which step."""
    steps = range(1, len(stream) + 1)
    return {(stream[t - j : t], t): 1 for t in steps for j in range(1, longest + 1) if j <= t}


def apart(one: dict[Any, int], other: dict[Any, int]) -> int:
    """The squared norm of a difference."""
    return sum((one.get(k, 0) - other.get(k, 0)) ** 2 for k in {*one, *other})


@pytest.mark.parametrize(("longest", "steps"), [(1, 1), (2, 3), (3, 5)])
def test_substrings(longest: int, steps: int) -> None:
    """[FHU22, Corollary 4]: l, for R = 1; what is found is l (l+1) (l+2) / 3."""
    worst = 0
    for letters in itertools.product("ab", repeat=steps):
        for p in range(steps):
            other = [*letters[:p], "b" if letters[p] == "a" else "a", *letters[p + 1 :]]
            worst = max(worst, apart(*(blocks("".join(s), longest) for s in (letters, other))))
    assert worst == {1: 2, 2: 6, 3: 12}[longest] > longest**2
    assert Words("ab", longest).change("replace_one").spread(Simple2(steps)).l2_squared == worst


def minimal(stream: str, longest: int) -> dict[tuple[str, int], int]:
    """Which episodes of up to two letters have a minimal occurrence that ends at which step."""
    found = {(letter, t): 1 for t, letter in enumerate(stream)}
    if longest == 2:
        for i, t in itertools.combinations(range(len(stream)), 2):
            within = stream[i + 1 : t]
            if stream[i] not in within and stream[t] not in within:
                found[stream[i] + stream[t], t] = 1
    return found


def test_episodes() -> None:
    """[FHU22, Corollary 5]: an error that belongs to |U|^(l-1) l = 4, for two letters, R = 1."""
    assert apart(minimal("baa", 2), minimal("bba", 2)) == 6 > 2 ** (2 - 1) * 2
    spread = Episodes("ab", max_length=2).change("replace_one").spread(Simple2(3))
    assert spread.l2_squared >= 6
    # Fewer steps are not enough.
    for letters in itertools.product("ab", repeat=2):
        for other in itertools.product("ab", repeat=2):
            if sum(a != b for a, b in zip(letters, other, strict=True)) == 1:
                assert apart(minimal("".join(letters), 2), minimal("".join(other), 2)) <= 4


def test_the_counts_of_all_letters() -> None:
    """[FHU22, Theorem 6], delta > 0: for many letters an error of T^(1/3) / log(T)^(2/3), in order.

    Letters are records of d bits, and the largest count of a letter is to be the largest number of
    records with one bit. For one record, of the bit 0, they are 1 and 0.
    """
    records = [(0,)]
    assert max(records.count(letter) for letter in ((0,), (1,))) == 1
    assert max(sum(bits) for bits in zip(*records, strict=True)) == 0
    # Letters that nobody listed, of any alphabet: a hidden one is off by its threshold and noise.
    losses = []
    for steps in (2**6, 2**12, 2**16):
        count = TickNumbers(
            *(dp.ApproxDP(0.5, float(steps) ** -2), 60, 0),
            horizon=steps,
            keys=dp.SelectKeys(),
            relation="replace_one",
            max_per_tick=1,
        )
        assert count.selection is not None
        largest = max(count.selection.thresholds) + dp.largest_error(count.counter)
        assert largest < 10 * math.log(steps) ** 2
        losses.append(largest / (steps ** (1 / 3) / math.log(steps) ** (2 / 3)))
    assert losses[2] < 0.85 * losses[1]


def test_a_client_who_moves() -> None:
    """[FHU22, section 5.6] takes one column for a client whose one leaves a cell for another."""
    f = coefficients(3)
    first, last = f, [0, 0, 1]
    moved = square(a - b for a, b in zip(first, last, strict=True))
    assert moved > square(f)
    assert float(moved) <= column_differences(SquareRoot(3))[1] <= float(moved) * (1 + 2e-6)


def balanced(stop: int) -> int:
    """The height for so many steps: even, and from ceil(log T) + log log T."""
    logs = math.log2(stop)
    least = math.ceil(logs) + math.log2(logs)
    return 2 * math.ceil(least / 2)


def test_the_variance_of_the_smooth_tree() -> None:
    """[AP23, Lemma 3.4]: in units of 1 / (8 rho), (log T + log log T)^2 for T from 13."""
    claimed = (math.log2(13) + math.log2(math.log2(13))) ** 2
    assert balanced(13) ** 2 == 36 > claimed
    free = min(4 * k * (h - k) for h in range(1, 20) for k in range(h + 1) if math.comb(h, k) >= 14)
    assert free == 32 > claimed
    for made, variance in ((SmoothBinary(13, balanced=True), 36), (SmoothBinary(13), 32)):
        assert 8 * 0.5 * dp.calibrate(made, dp.ZCDP(0.5)).max_variance() == pytest.approx(variance)


def nodes_of_first(steps: int) -> int:
    """How many nodes of the binary tree hold item 1: those that end at powers of 2."""
    return sum(1 for t in range(1, steps + 1) if t & (t - 1) == 0)


def test_the_tree_of_a_blog() -> None:
    """[Mad]: noise of scale log2(T) / epsilon a node."""
    assert nodes_of_first(3) / math.log2(3) == pytest.approx(1.26, abs=0.01)
    assert nodes_of_first(5) / math.log2(5) == pytest.approx(1.29, abs=0.01)
    for steps in (1, 2, 4, 1024):  # its array has ceil(log2(T)) places, from 0
        used = {(t & -t).bit_length() - 1 for t in range(1, steps + 1)}
        assert max(used) == math.ceil(math.log2(steps))
    for steps in (1, 2, 3, 5, 1000):
        assert BinaryTree(steps).l1_sensitivity == nodes_of_first(steps)


def test_inputs_that_follow_noise_drawn_early() -> None:
    """[APT24, Theorem 1.3] for Algorithm 2: T = 3, x3 chosen once z3 - z2 was seen."""
    counter = dp.calibrate(KAry(3, arity=3), dp.PureDP(0.2))
    assert counter.mechanism.decoder(3).tolist() == [[1, 0, 0], [0, -1, 1], [0, 0, 1]]
    assert isinstance(counter.law, DiscreteLaplace)
    given = DiscreteLaplace(counter.law.parameter / 2)  # z3, where z3 = z2
    fixed = audits.renyi(counter.law, np.array([1, 1]), 2.0)
    assert audits.renyi(given, np.array([1]), 2.0) > 1.9 * fixed
    assert audits.pure_loss(given, np.array([1])) <= 0.2 + 1e-12  # pure DP holds
    # A run resumed twice from one state with other inputs shows their difference.
    noise = audits.Tape(np.array([5, -2, 9]))
    state = counter.init()
    for x in (1, 0):
        state, _ = counter.step(state, x, noise)
    seen = [counter.step(state, x, audits.Tape(np.array([100 + x])))[1] for x in (0, 1)]
    assert seen[1] - seen[0] == 1
    with pytest.raises(ValueError, match=r"noise"):
        dp.calibrate(KAry(3, arity=3), dp.ZCDP(0.5))


def test_dropping_by_degree(monkeypatch: pytest.MonkeyPatch) -> None:
    """An insertion is dropped if an end is full: one pair decides about a whole path."""

    def truncated(graph: Graph, u: int, v: int, limit: int | None) -> Graph:
        there = graph.edges.has(u * graph.n + v)
        if there or (limit and max(graph.degree(u), graph.degree(v)) >= limit):
            return graph
        return graph._replace(edges=graph.edges.add(u * graph.n + v, v * graph.n + u))

    def moved(n: int) -> int:
        statistic, path = Edges(n, max_degree=1), [(i, i + 1) for i in range(n - 1)]
        return int(np.abs(added(statistic, path) - added(statistic, without(path))).sum())

    assert moved(40) <= Edges(40, max_degree=1).change("edge").spread(Simple2(39)).l1 == 3
    monkeypatch.setattr(Graph, "offer", truncated)
    assert [moved(n) for n in (3, 4, 5, 40)] == [2, 3, 4, 39]


def test_the_analytic_scale_for_a_discrete_gaussian() -> None:
    """[BW18, Theorem 8] is of continuous noise: one count, epsilon = 1, delta = 0.1."""
    sigma2 = Fraction(gaussian_sigma(1.0, 0.1)) ** 2
    one = np.array([1])
    assert audits.hockey_stick(DiscreteGaussian(sigma2), one, 1.0)[0] > 1.1 * 0.1
    assert sum(audits.hockey_stick(RoundedGaussian(sigma2), one, 1.0)) <= 0.1 * (1 + 1e-3)
    sigma2 = Fraction(gaussian_sigma(8.0, 1e-6)) ** 2
    assert audits.hockey_stick(DiscreteGaussian(sigma2), one, 8.0)[0] > 3e-6
    for epsilon, delta in ((1.0, 0.1), (8.0, 1e-6)):  # the discrete law never gets that scale
        law = dp.calibrate(SmoothBinary(1), dp.ApproxDP(epsilon, delta)).law
        least = Fraction(gaussian_sigma(epsilon, delta)) ** 2
        assert isinstance(law, RoundedGaussian | DiscreteGaussian)
        assert isinstance(law, RoundedGaussian) or law.sigma2 > least


def test_a_variance_taken_for_a_standard_deviation() -> None:
    """Scale sigma^2 in place of sigma: where sigma < 1 that is less noise, and too little."""
    counter = dp.calibrate(SmoothBinary(2), dp.ZCDP(2.0))
    assert isinstance(counter.law, DiscreteGaussian)
    sigma2 = counter.law.sigma2
    assert sigma2 == Fraction(1, 2)
    assert audits.audit(counter) == []
    assert audits.audit(replace(counter, law=DiscreteGaussian(sigma2**2))) == ["budget"]


# Claims that hold, and ask for more than is needed


def test_half_of_the_bits() -> None:
    """[AP23]: k = h / 2; k (h - k) at T = 1024."""
    shapes = [
        (k * (h - k), h, k) for h in range(1, 30) for k in range(h + 1) if math.comb(h, k) >= 1025
    ]
    assert min(shapes)[0] == 40
    assert min(shape for shape in shapes if shape[1] == 2 * shape[2])[0] == 49
    for made, units in ((SmoothBinary(1024), 40), (SmoothBinary(1024, balanced=True), 49)):
        counter = dp.calibrate(made, dp.ZCDP(0.5))
        assert counter.max_variance() == pytest.approx(units)


def ends(gathered: Sequence[int], threshold: float, comparison: float) -> np.ndarray:
    """The probabilities that a segment of size 1 ends at each step, or at none."""
    y = np.arange(-400, 401)
    nu, v = (
        np.exp(audits.log_pmf(DiscreteLaplace(Fraction(s)), y)) for s in (threshold, comparison)
    )
    above = np.cumsum(v[::-1])[::-1]  # P(v >= y)
    alive, made = nu.copy(), []
    for g in gathered:
        reach = np.clip(1 + y - g + 400, 0, 800)  # v >= K + nu - g
        made.append(float(alive @ above[reach]))
        alive = alive * (1 - above[reach])
    return np.array([*made, float(alive.sum())])


def test_the_scales_of_sparse() -> None:
    """[DNRR15]: 2 / e1 and 4 / e1, where 1 / e1 for both is enough, e1 = 1."""
    losses = {}
    for scales in ((1, 1), (2, 4)):
        worst = 0.0
        for xs in itertools.product((0, 1), repeat=4):
            for t in range(4):
                other = [*xs[:t], 1 - xs[t], *xs[t + 1 :]]
                p, q = (ends(np.cumsum(s).tolist(), *scales) for s in (xs, other))
                worst = max(worst, float(np.abs(np.log(p / q)).max()))
        losses[scales] = worst
    assert 0.6 < losses[1, 1] <= 1 + 1e-9
    assert losses[2, 4] <= 0.5
    counter = dp.calibrate(dp.mechanisms.Sparse(1, 1), dp.PureDP(2.0))
    assert counter.law == counter.comparison == DiscreteLaplace(Fraction(1))


def test_the_closed_form_of_zcdp() -> None:
    """[BS16, Proposition 1.3]: rho + 2 sqrt(rho ln(1/delta))."""
    for rho, delta in ((0.005, 1e-6), (0.1, 1e-6), (0.5, 1e-9)):
        printed = rho + 2 * math.sqrt(rho * math.log(1 / delta))
        assert 0.8 * printed < zcdp_epsilon(rho, delta) < 0.97 * printed


def test_laplace_noise_by_its_l2_norm() -> None:
    """[APT24, Theorem 1.3]: scale Delta_2 / a; the same noise, as zCDP, has a smaller epsilon."""
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-6), (1.0, 1e-9), (3.0, 1e-6)):
        a = math.sqrt(2 * (math.log(1 / delta) + epsilon)) - math.sqrt(2 * math.log(1 / delta))
        assert zcdp_epsilon(a * a / 2, delta) < epsilon


# The page


def test_the_tables_name_these_tests() -> None:
    rows = re.findall(r"^\|.*\| `(test_\w+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    here = [name for name in globals() if name.startswith("test_") and "tables" not in name]
    assert rows == here
