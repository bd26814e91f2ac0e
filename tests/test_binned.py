"""Binned: the authors' tables, the bins, what it claims of its encoder, and the bounds on rounding
in exact rational arithmetic: they are what the noise is calibrated to."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.errors import HorizonError
from beam_dpcount.mechanisms import binned_tables
from beam_dpcount.mechanisms.base import UnsupportedHorizonError
from beam_dpcount.mechanisms.binned import Binned
from beam_dpcount.mechanisms.square_root import coefficients
from beam_dpcount.mechanisms.workload import PREFIX_SUMS, Workload, toeplitz
from beam_dpcount.states.codecs import StateCodec
from tests.scripted import Script, random_script

examples = settings(max_examples=60, deadline=None, derandomize=True, database=None)

PARAMETERS = [
    {},
    {"c": 0.75, "tau": 0.01},
    {"c": 0.95, "tau": 0},
    {"c": 0.3, "tau": 0.1},
    {"momentum": 0.9},
    {"decay": 0.99},
    {"momentum": 0.5, "decay": 0.9, "c": 0.8},
    {"momentum": 0.1, "decay": 0.4, "tau": 0},
]
every = pytest.mark.parametrize("parameters", PARAMETERS, ids=str)


def bits(values):
    return np.asarray(values, dtype="<f8").tobytes()


def take_steps(mechanism, xs, noise, dimension=None):
    state, states, values = mechanism.init(dimension), [], []
    for x in xs.tolist() if dimension is None else xs:
        state, value = mechanism.step(state, x, noise)
        states.append(state)
        values.append(value)
    return states, np.array(values)


def encoded(mechanism, xs):
    """The integers q that noise is added to, read off the states: the sum over t's own bin."""
    states, _ = take_steps(mechanism, xs, Script(np.zeros(len(xs))))
    return [state[2 if mechanism.workload.is_prefix_sums else 5] for state in states]


# The same in rational arithmetic


def exact_decoder(mechanism, n):
    return [[Fraction(v) for v in row[: t + 1]] for t, row in enumerate(mechanism.decoder(n))]


def exact_solution(L, columns):
    """L^-1 times a matrix of which row t is columns[t]."""
    rows = []
    for t, weights in enumerate(L):
        assert weights[t] == 1
        known = [
            sum(w * row[s] for w, row in zip(weights, rows, strict=False))
            for s in range(len(columns[t]))
        ]
        rows.append([a - b for a, b in zip(columns[t], known, strict=True)])
    return rows


def exact_workload(mechanism, xs):
    beta, alpha = Fraction(mechanism.momentum), Fraction(mechanism.decay)
    v = w = Fraction(0)
    sums = []
    for x in xs:
        v = beta * v + int(x)
        w = alpha * w + v
        sums.append(w)
    return sums


def exact_encoder(mechanism, n):
    units = np.eye(n, dtype=int)
    A = list(zip(*[exact_workload(mechanism, unit) for unit in units], strict=True))
    return exact_solution(exact_decoder(mechanism, n), A)


# The authors' numbers


@pytest.mark.parametrize(
    ("n", "d", "bins", "ratio"),
    [(1000, 4, 13, 1.0269), (1000, 7, 20, 1.0007), (1000, 9, 26, 0.9995), (100, 5, 11, 0.99829)],
)
def test_bins_and_errors_of_the_authors(n, d, bins, ratio):
    """MaxSE at rho = 1/2, over the square root's."""
    mechanism = Binned(n, c=1 - 1 / d, tau=1 / n)
    assert mechanism.space == bins
    square_root = np.square(coefficients(PREFIX_SUMS, n)).sum() ** 2
    largest = mechanism.max_row_norm2() * mechanism.l2_sensitivity_squared
    assert largest / square_root == pytest.approx(ratio, abs=6e-5)


@pytest.mark.exhaustive
def test_defaults_are_a_good_pair_at_every_horizon():
    assert Binned(1000).bins(900) == Binned(1000, c=1 - 1 / 7, tau=0.001).bins(900)
    for horizon, bins in ((2**6, 13), (2**10, 21), (2**14, 28)):
        mechanism = Binned(horizon)
        square_root = np.square(coefficients(PREFIX_SUMS, horizon)).sum() ** 2
        assert mechanism.space < bins
        largest = mechanism.max_row_norm2() * mechanism.l2_sensitivity_squared
        assert largest < 1.01 * square_root
    assert mechanism.resolution(1) == 2**22
    assert 2 * mechanism.encoding_error * 2**7 < 1e-6


# Bins


@every
def test_bins_are_unions_of_those_of_the_row_before(parameters):
    before = ()
    for t in range(1, 301):
        bins = Binned(300, **parameters).bins(t)
        assert bins[0] == (t, t)
        covered = [column for first, last in bins[::-1] for column in range(first, last + 1)]
        assert covered == list(range(1, t + 1))
        ends = {last for _, last in bins}
        assert ends - {t} <= {last for _, last in before}
        before = bins
    assert len(before) < 300


@every
def test_weights_are_the_means_of_both_ends(parameters):
    mechanism = Binned(200, **parameters)
    L, square_root = mechanism.decoder(200), toeplitz(coefficients(mechanism.workload, 200))
    for t in (1, 2, 3, 50, 199, 200):
        for first, last in mechanism.bins(t):
            ends = (square_root[t - 1, first - 1] + square_root[t - 1, last - 1]) / 2
            assert L[t - 1, first - 1 : last] == pytest.approx([ends] * (last - first + 1), 1e-11)
        assert not L[t - 1, t:].any()


def test_bins_by_hand():
    """c = 1/2, tau = 0; the square root's first column is 1, 1/2, 3/8, 5/16, 35/128."""
    mechanism = Binned(6, c=0.5, tau=0)
    assert [mechanism.bins(t) for t in range(1, 6)] == [
        ((1, 1),),
        ((2, 2), (1, 1)),
        # L[3, 2] is 1/2 of ref = L[3, 3], not above c.
        ((3, 3), (2, 2), (1, 1)),
        # L[4, 2] = 3/8 is above c of ref = L[4, 3] = 1/2, and L[4, 1] = 5/16 at least c^2 of it.
        ((4, 4), (3, 3), (1, 2)),
        # L[5, 3] and L[5, 1] = 35/128 likewise, with ref = L[5, 4] = 1/2.
        ((5, 5), (4, 4), (1, 3)),
    ]
    assert mechanism.row_norm2(4) == 1 + 1 / 4 + 2 * ((3 / 8 + 5 / 16) / 2) ** 2
    assert mechanism.row_norm2(5) == 1 + 1 / 4 + 3 * ((3 / 8 + 35 / 128) / 2) ** 2


def bins_by_the_rule(r, n, c, tau):
    """Intervals of each row, as Algorithm 1 has them: ratios of the entries of L."""

    def entry(t, j):
        return r[t - j]

    before, rows = [], []
    for t in range(1, n + 1):
        todo, row = list(before), [(t, t)]
        while todo:
            left, right = todo.pop(0)
            ref = entry(t, right + 1)
            if entry(t, right) < tau:
                left, todo = (todo[-1][0] if todo else left), []
            else:
                cur = entry(t, left) / ref
                while todo and cur > c and entry(t, todo[0][0]) / ref >= c**2:
                    left = todo.pop(0)[0]
                    if entry(t, left) < tau:
                        left, todo = (todo[-1][0] if todo else left), []
                    cur = entry(t, left) / ref
            row.append((left, right))
        rows.append(tuple(row))
        before = row
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("workload", [(0.0, 1.0), (0.9, 1.0), (0.2, 0.95)])
def test_bins_follow_the_rule_of_the_authors(workload):
    r = coefficients(Workload(*workload), 250).tolist()
    for c in (0.31, 0.52, 0.77, 0.861, 0.93):
        for tau in (0.0004, 0.01, 0.041, 0.11, 0.33):
            mechanism = Binned(250, c, tau, *workload)
            bins = [mechanism.bins(t) for t in range(1, 251)]
            assert bins == bins_by_the_rule(r, 250, c, tau), (c, tau)


def test_coefficients_are_the_same_bits_on_every_machine():
    """States go from machine to machine: bins and weights must not depend on the processor."""
    for workload, digest in (
        (PREFIX_SUMS, "ce53f25ebee47d2a"),
        (Workload(0.9, 0.999), "5c09d6b2014dcd27"),
    ):
        data = coefficients(workload, 2000).tobytes()
        assert hashlib.sha256(data).hexdigest().startswith(digest)


def test_entries_below_tau_share_one_bin():
    mechanism = Binned(100, c=0.999, tau=0.1)  # 1/sqrt(pi j) < 0.1 from j = 32 on
    r = coefficients(PREFIX_SUMS, 100)
    below = int(np.argmax(r < 0.1))
    assert below == 32
    for t in (below + 2, 50, 100):
        assert mechanism.bins(t)[-1][0] == 1
        assert t - below - 1 <= mechanism.bins(t)[-1][1] <= t - below
        assert len(mechanism.bins(t)) > 20


@every
def test_bins_do_not_depend_on_the_horizon(parameters):
    fixed = {"tau": 0.02} | parameters
    long, short = Binned(300, **fixed), Binned(120, **fixed)
    assert [long.bins(t) for t in range(1, 121)] == [short.bins(t) for t in range(1, 121)]


# Matrices and norms


@every
@pytest.mark.parametrize("n", [1, 2, 3, 17, 64, 200])
def test_norms_against_dense_linear_algebra(parameters, n):
    mechanism = Binned(n, **parameters)
    L, A = mechanism.decoder(n), mechanism.workload.matrix(n)
    assert mechanism.workload == Workload(mechanism.momentum, mechanism.decay)
    R, inverse = np.linalg.solve(L, A), np.linalg.inv(L)
    assert np.allclose(mechanism.encoder(n), R, rtol=1e-11, atol=1e-12)
    assert np.allclose(L @ mechanism.encoder(n), A, rtol=1e-12, atol=1e-12)
    for claimed, norm, slack in (
        (mechanism.l2_sensitivity_squared, np.square(R).sum(axis=0).max(), 2e-8),
        (mechanism.l1_sensitivity, np.abs(R).sum(axis=0).max(), 2e-8),
        (mechanism.rounding, np.abs(inverse).sum(axis=1).max(), 1e-6),
    ):
        assert norm <= claimed <= norm * (1 + slack)
    norms = np.square(L).sum(axis=1)
    assert mechanism.row_norms2(n) == pytest.approx(norms, rel=1e-13)
    assert mechanism.row_norm2(n) == pytest.approx(norms[-1], rel=1e-13)
    assert mechanism.max_row_norm2() == pytest.approx(norms.max(), rel=1e-13)
    assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-13)
    for k in {0, 1, n // 2}:
        assert np.allclose(mechanism.encoder(k), R[:k, :k], rtol=1e-11, atol=1e-12)
        assert mechanism.encoder(k).shape == (k, k)
        assert np.array_equal(mechanism.decoder(k), L[:k, :k])


@pytest.mark.slow
@every
def test_norms_are_no_smaller_than_the_exact_ones(parameters):
    mechanism = Binned(20, **parameters)
    R = exact_encoder(mechanism, 20)
    unit = [[Fraction(int(s == t)) for s in range(20)] for t in range(20)]
    inverse = exact_solution(exact_decoder(mechanism, 20), unit)
    columns = list(zip(*R, strict=True))
    for claimed, exact in (
        (mechanism.l2_sensitivity_squared, max(sum(v * v for v in c) for c in columns)),
        (mechanism.l1_sensitivity, max(sum(map(abs, c)) for c in columns)),
        (mechanism.rounding, max(sum(map(abs, row)) for row in inverse)),
    ):
        assert exact <= Fraction(claimed) <= exact * (1 + Fraction(1, 5 * 10**7))


def test_the_largest_column_is_not_the_first():
    norms = np.square(Binned(1000).encoder(1000)).sum(axis=0)
    assert norms.argmax() == 81
    assert Binned(1000).l2_sensitivity_squared > 1.0001 * norms[0]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 7, 99, 100, 101])
def test_columns_may_be_searched_in_blocks(columns, monkeypatch):
    for parameters in PARAMETERS:
        mechanism = Binned(100, **parameters)
        whole = mechanism._norms
        monkeypatch.setattr(binned_tables, "_COLUMNS", columns)
        assert binned_tables.search.__wrapped__(*mechanism._key) == pytest.approx(whole, rel=1e-8)
        monkeypatch.undo()


# Rounding: what the privacy of a rounded encoder rests on


def streams(n, m, R):
    """Streams within [-m, m] that make sums, encoded values and roundings large."""
    rng = np.random.default_rng(n)
    t = np.arange(n)
    yield rng.integers(-m, m + 1, n)
    yield rng.choice([-m, m], n)
    yield np.full(n, m)
    yield np.where(t % 2 == 0, m, -m)
    yield np.where(t < n // 2, m, -m)
    yield np.where(t == 0, m, 0)
    yield np.where(R[-1] >= 0, m, -m)  # the largest last encoded value
    yield np.minimum(m, rng.integers(-1, 2, n))


@pytest.mark.slow
@pytest.mark.exhaustive("parameters", "spread")
@every
@pytest.mark.parametrize("spread", [1, None, 2**40], ids=["units", "resolved", "large"])
def test_encoded_values_solve_the_workload_up_to_half_a_unit(parameters, spread):
    """L q = W + e exactly, with |e| <= 1/2 + m encoding_error / rounding."""
    mechanism = Binned(150, **parameters)
    m = spread or mechanism.resolution(1)
    tolerance = Fraction(1, 2) + m * Fraction(mechanism.encoding_error / mechanism.rounding)
    assert mechanism.encoding_error < 1e-10
    L, largest = exact_decoder(mechanism, 150), 0
    for xs in streams(150, m, mechanism.encoder(150)):
        q, sums = encoded(mechanism, xs), exact_workload(mechanism, xs)
        assert all(type(v) is int for v in q)
        for weights, total in zip(L, sums, strict=True):
            error = abs(sum(map(Fraction.__mul__, weights, map(Fraction, q))) - total)
            assert error <= tolerance
            largest = max(largest, error)
    assert largest > Fraction(2, 5)  # the bound is not an idle one


@pytest.mark.slow
@every
def test_encoded_values_are_near_the_exact_ones(parameters):
    mechanism, n = Binned(24, **parameters), 24
    R = exact_encoder(mechanism, n)
    for m in (1, mechanism.resolution(1)):
        half = Fraction(mechanism.rounding) / 2
        tolerance = half + m * Fraction(mechanism.encoding_error)
        largest = 0
        for xs in streams(n, m, mechanism.encoder(n)):
            for value, row in zip(encoded(mechanism, xs), R, strict=True):
                error = abs(value - sum(r * int(x) for r, x in zip(row, xs, strict=True)))
                assert error <= tolerance
                largest = max(largest, error)
        assert largest > half / 4


@pytest.mark.slow
@every
def test_neighbours_differ_by_no_more_than_is_noised(parameters):
    """Also after many steps; and without what rounding adds the bound would not hold."""
    horizon = 200
    mechanism, rng = Binned(horizon, **parameters), np.random.default_rng(3)
    column = int(np.square(mechanism.encoder(horizon)).sum(axis=0).argmax())
    beyond = 0
    for magnitude in (1, 5):
        m = magnitude * mechanism.resolution(magnitude)
        for unit in (magnitude, m):  # not multiplied by the resolution, too
            l1, l2_squared = mechanism.norms(unit)
            for s in (0, column, horizon // 2, horizon - 1):
                for xs in (rng.integers(0, unit + 1, horizon), np.full(horizon, unit)):
                    others = xs.copy()
                    xs[s], others[s] = unit, 0
                    one, other = encoded(mechanism, xs), encoded(mechanism, others)
                    difference = [int(a) - int(b) for a, b in zip(one, other, strict=True)]
                    assert not any(difference[:s])
                    assert sum(d * d for d in difference) <= l2_squared
                    assert sum(map(abs, difference)) <= l1
                    plain = unit**2 * mechanism.l2_sensitivity_squared
                    beyond += sum(d * d for d in difference) > plain
        slack = math.sqrt(mechanism.norms(m)[1] / m**2 / Fraction(mechanism.l2_sensitivity_squared))
        assert 1 < slack <= 1 + 1e-4
    assert beyond > 0


@pytest.mark.slow
@every
def test_rounding_does_not_build_up(parameters):
    """Without noise, the last of 3000 releases is within half a unit too."""
    mechanism = Binned(3000, **parameters)
    xs = np.random.default_rng(1).integers(-1000, 1001, 3000)
    released = mechanism.release(xs, Script(np.zeros(3000)))
    beta, alpha = mechanism.momentum, mechanism.decay
    v = w = 0.0
    for x, value in zip(xs.tolist(), released, strict=True):
        v = beta * v + x
        w = alpha * w + v
        assert abs(value - w) <= 0.5 + 1e-6


def test_the_error_that_is_stated_covers_every_rounding_of_sums_with_momentum():
    """Exact arithmetic again, where inputs are not exact in double precision."""
    mechanism = Binned(60, momentum=0.9, decay=0.95)
    m = 2**60
    xs = np.random.default_rng(2).integers(-m, m + 1, 60)
    tolerance = Fraction(1, 2) + m * Fraction(mechanism.encoding_error / mechanism.rounding)
    q, L = encoded(mechanism, xs), exact_decoder(mechanism, 60)
    errors = [
        abs(sum(map(Fraction.__mul__, weights, map(Fraction, q))) - total)
        for weights, total in zip(L, exact_workload(mechanism, xs), strict=True)
    ]
    assert 1 < max(errors) <= tolerance < m * Fraction(1, 10**11)


@pytest.mark.parametrize("decay", [1.0, 0.999, 0.95])
def test_sums_with_momentum_are_kept_to_far_more_than_53_bits(decay):
    mechanism, m = Binned(300, momentum=0.9, decay=decay), 2**50
    xs = np.random.default_rng(3).integers(-m, m + 1, 300)
    states, _ = take_steps(mechanism, xs, Script(np.zeros(300)))
    for state, total in zip(states, exact_workload(mechanism, xs), strict=True):
        assert abs(Fraction(state[3]) + Fraction(state[4]) - total) <= m * Fraction(1, 2**90)


@pytest.mark.slow
@every
def test_the_stated_error_counts_every_rounding_of_a_row(parameters):
    """With row sums from dense matrices: a row's terms, once each for every bin and eight more."""
    mechanism = Binned(150, **parameters)
    L, A = mechanism.decoder(150), mechanism.workload.matrix(150)
    of_A, of_L, of_R, of_inverse = (
        np.abs(matrix).sum(axis=1).max()
        for matrix in (A, L, np.linalg.solve(L, A), np.linalg.inv(L))
    )
    roundings = (mechanism.space + 8) * 2.0**-53
    least = roundings * (of_A + of_L * (of_R + of_inverse)) * of_inverse
    assert least <= mechanism.encoding_error <= least * 1.0001


# Steps and releases


@pytest.mark.slow
@pytest.mark.exhaustive("dimension", "parameters")
@every
@pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])
@examples
@given(data=st.data())
def test_steps_and_releases_agree_in_every_bit(parameters, dimension, data):
    numbers = st.integers(-(2**40), 2**40)
    row = numbers if dimension is None else st.tuples(*[numbers] * dimension)
    xs = np.array(data.draw(st.lists(row, min_size=1, max_size=40)), dtype=np.int64)
    mechanism = Binned(len(xs) + data.draw(st.sampled_from([0, 300])), **parameters)
    noise = random_script(len(xs), dimension, data.draw(st.integers(0, 2**32)), spread=2**40)
    states, values = take_steps(mechanism, xs, noise, dimension)
    assert noise.drawn == list(range(1, len(xs) + 1))
    released = mechanism.release(xs, Script(noise.z))
    assert released.dtype == np.float64
    assert bits(released) == bits(values)
    assert all(len(s) == len(mechanism.init()) + 2 * len(mechanism.bins(s[0])) for s in states)
    assert mechanism.state_size == len(mechanism.init()) + 2 * mechanism.space


@pytest.mark.slow
@every
def test_coordinates_of_a_vector_stream_are_streams_of_their_own(parameters):
    mechanism = Binned(300, **parameters)
    xs = np.random.default_rng(4).integers(-(10**6), 10**6, (300, 3))
    noise = random_script(300, 3, spread=10**6)
    released = mechanism.release(xs, noise)
    for i in range(3):
        assert bits(mechanism.release(xs[:, i], Script(noise.z[:, i]))) == bits(released[:, i])


@every
def test_releases_are_the_workload_plus_decoded_noise(parameters):
    """To half a unit of what was rounded."""
    mechanism = Binned(300, **parameters)
    xs = np.random.default_rng(5).integers(-100, 101, 300)
    noise = random_script(300, spread=1000)
    expected = mechanism.workload.matrix(300) @ xs + mechanism.decoder(300) @ noise.z
    errors = np.abs(mechanism.release(xs, noise) - expected)
    assert 0.4 < errors.max() <= 0.5 + 1e-8


@every
@pytest.mark.parametrize("dimension", [None, 2], ids=["scalar", "vector"])
def test_releases_are_functions_of_the_noised_values_alone(parameters, dimension):
    """Two streams and noises whose q + z agree give the same bits."""
    mechanism, rng = Binned(80, **parameters), np.random.default_rng(6)
    xs, others = rng.integers(-1000, 1001, (2, 80, dimension or 1))
    z = rng.integers(-5000, 5001, xs.shape)
    columns = zip(xs.T, others.T, strict=True)
    shift = [np.subtract(encoded(mechanism, a), encoded(mechanism, b)) for a, b in columns]
    others_z = z + np.transpose(shift)
    if dimension is None:
        xs, others, z, others_z = xs[:, 0], others[:, 0], z[:, 0], others_z[:, 0]
    one, other = mechanism.release(xs, Script(z)), mechanism.release(others, Script(others_z))
    assert bits(one) == bits(other)
    assert bits(one) != bits(mechanism.release(xs, Script(others_z)))


@every
@pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])
def test_states_round_trip_bit_for_bit(parameters, dimension):
    counter = dp.calibrate(Binned(130, **parameters), dp.ZCDP(0.5), dp.Change(-9, 9), dimension)
    codec = StateCodec(counter)
    shape = (130,) if dimension is None else (130, dimension)
    xs = np.random.default_rng(8).integers(-9, 10, shape)
    noise = random_script(130, dimension, seed=9, spread=10**6)
    state = kept = counter.init()
    for x in xs.tolist() if dimension is None else xs:
        kept = codec.decode(codec.encode(kept))
        assert [np.asarray(v).dtype for v in kept] == [np.asarray(v).dtype for v in state]
        assert all(bits(a) == bits(b) for a, b in zip(kept, state, strict=True))
        state, value = counter.step(state, x, noise)
        kept, again = counter.step(kept, x, noise)
        assert bits(value) == bits(again)


# Values and errors


def test_pairs_are_kept_as_given_and_states_know_what_they_resolve_to():
    mechanism = Binned(50, tau=0)
    assert (mechanism.c, mechanism.tau) == (None, 0.0)
    assert type(mechanism.tau) is float
    assert eval(repr(mechanism)) == mechanism
    assert eval(repr(Binned(9, np.float64(0.5), momentum=0.1))) == Binned(9, 0.5, None, 0.1)
    assert Binned(50) != Binned(50, c=6 / 7, tau=1 / 50)
    assert "c = 0.857142857142857" in Binned(50).fingerprint
    assert "tau = 0.02" in Binned(50).fingerprint
    assert mechanism.laws == {"gaussian"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.c = 0.5


def test_pickles_hold_no_caches():
    mechanism, size = Binned(500), len(pickle.dumps(Binned(500)))
    expected = mechanism.l2_sensitivity_squared, mechanism.max_row_norm2(), mechanism.workload
    assert len(pickle.dumps(mechanism)) == size < 300
    again = pickle.loads(pickle.dumps(mechanism))
    assert (again.l2_sensitivity_squared, again.max_row_norm2(), again.workload) == expected


def test_workloads_out_of_range_are_refused():
    with pytest.raises(ValueError, match="0 <= momentum < decay <= 1"):
        Binned(10, momentum=0.9, decay=0.5)


def test_steps_out_of_range_are_refused():
    for t in (0, -1, 11):
        with pytest.raises(ValueError, match=f"from 1 to the horizon 10, got {t}"):
            Binned(10).bins(t)
    with pytest.raises(HorizonError, match="horizon of 10"):
        Binned(10).encoder(11)


def test_long_horizons_are_refused_when_they_are_used():
    for horizon in (2**14 + 1, 2**48):
        mechanism = Binned(horizon)
        assert mechanism.name == "Binned"
        assert mechanism.workload == PREFIX_SUMS
        assert str(horizon) in mechanism.fingerprint
        for use in (
            lambda m=mechanism: m.l2_sensitivity_squared,
            lambda m=mechanism: m.resolution(1),
            lambda m=mechanism: m.max_row_norm2(),
            lambda m=mechanism: m.state_size,
            lambda m=mechanism: m.step(m.init(), 1, Script([0])),
            lambda m=mechanism: dp.calibrate(m, dp.ZCDP(1)),
        ):
            with pytest.raises(UnsupportedHorizonError, match="use NormalizedBLT") as caught:
                use()
            assert str(horizon) in str(caught.value)


def test_too_many_bins_are_refused(monkeypatch):
    monkeypatch.setattr(binned_tables, "_MOST_BINS", 1000)
    key = Binned(100, c=0.999)._key
    with pytest.raises(UnsupportedHorizonError, match="give a smaller c"):
        binned_tables.schedule.__wrapped__(*key)
    assert len(binned_tables.schedule.__wrapped__(*Binned(100, c=0.5)._key)) == 100


def test_arithmetic_that_cannot_vouch_for_the_sensitivity_is_refused(monkeypatch):
    key = Binned(100)._key
    exact = binned_tables.search.__wrapped__(*key)
    monkeypatch.setattr(binned_tables, "ULP", 2.0**-35)  # a coarser one: larger bounds
    coarse = binned_tables.search.__wrapped__(*key)
    assert all(a > b for a, b in zip(coarse, exact, strict=True))
    monkeypatch.setattr(binned_tables, "ULP", 2.0**-20)
    with pytest.raises(UnsupportedHorizonError, match=r"too long for Binned with c = 0\.85"):
        binned_tables.search.__wrapped__(*key)
