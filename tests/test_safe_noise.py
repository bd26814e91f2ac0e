"""Noise that floating point cannot break: it is drawn as integers by `laws.py` alone, and every
release is a function of integers, the encoded stream plus its noise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from tests.audit.attacks import HOSTILE
from tests.made_up import makes_up_logs
from tests.rounding import unrounded
from tests.scripted import Script, random_script

ROOT = Path(__file__).parent.parent
every = pytest.mark.parametrize("kind", mechanisms.ALL, ids=lambda kind: kind.__name__)
dimensions = pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])

# Where randomness comes from

GENERATORS = {"random", "secrets", "numpy.random", "scipy.stats"}
CONTINUOUS = {
    "normal", "standard_normal", "multivariate_normal", "normalvariate", "gauss", "lognormal",
    "laplace", "exponential", "expovariate", "gumbel", "logistic", "standard_cauchy", "rvs",
}  # fmt: skip
SYSTEM = {"urandom", "getrandom", "token_bytes", "randbits", "SystemRandom"}


def seeded(node: ast.AST) -> bool:
    """np.random.default_rng(seed), the seed no None."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "np.random.default_rng"
        and len(node.args) == 1
        and not node.keywords
        and ast.unparse(node.args[0]) != "None"
    )


def violations(text: str, inputs_may_be_random: bool, entropy_may_be_used: bool) -> Iterator[str]:
    """What in a module could make noise.

    Inputs of demonstrations are public: they may be random, by a generator whose seed is given.
    Entropy may be used as the default of a parameter, and nowhere else.
    """
    tree = ast.parse(text)
    allowed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if inputs_may_be_random:
            if seeded(node):
                allowed.update((node.func, node.func.value))  # type: ignore[attr-defined]
            elif isinstance(node, ast.Attribute) and ast.unparse(node) == "np.random.Generator":
                allowed.add(node.value)
            elif isinstance(node, ast.Attribute) and ast.unparse(node) != "np.random":
                allowed.update([node] * (node.attr == "random"))  # a method of a generator
        if entropy_may_be_used and isinstance(node, ast.arguments):
            allowed.update(default for default in node.defaults)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name in GENERATORS]
        elif isinstance(node, ast.ImportFrom):
            full = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            names = [
                name
                for last, name in full.items()
                if node.module in GENERATORS or name in GENERATORS or last in SYSTEM
            ]
        elif isinstance(node, ast.Attribute) and node not in allowed:
            if node.attr in {"random", "default_rng", "RandomState"} | CONTINUOUS | SYSTEM:
                names = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if node.value in ("/dev/urandom", "/dev/random") else []
        yield from (f"line {node.lineno}: {name}" for name in names)  # type: ignore[attr-defined]


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.long
@pytest.mark.slow
def test_no_module_makes_noise_but_the_laws():
    assert len(modules("beam_dpcount")) > 25
    for path in modules("beam_dpcount"):
        if makes_up_logs(path):
            continue
        in_laws = path.name == "laws.py" or path.parts[-2:] == ("states", "people.py")
        found = violations(path.read_text(), False, in_laws)
        assert list(found) == [], path


def test_entropy_is_used_by_the_laws():
    """As the default of `sample`: so the rule above looks at the place where it is."""
    text = (ROOT / "beam_dpcount" / "noise" / "laws.py").read_text()
    found = list(violations(text, False, False))
    assert len(found) == text.count("os.urandom") == 3
    assert all(line.endswith("os.urandom") for line in found)


def test_what_else_is_drawn_is_one_secret_of_digests():
    text = (ROOT / "beam_dpcount" / "states" / "people.py").read_text()
    assert text.count("os.urandom") == len(list(violations(text, False, False))) == 1
    assert "def begin(self, source: Callable[[int], bytes] = os.urandom) -> Mark:" in text


def test_pipelines_take_random_inputs_at_most():
    for path in modules("pipelines"):
        assert list(violations(path.read_text(), True, False)) == [], path


@pytest.mark.parametrize(
    ("code", "in_pipelines"),
    [
        ("import random", True),
        ("from random import gauss", True),
        ("import numpy.random", True),
        ("from numpy import random", True),
        ("from numpy.random import default_rng", True),
        ("import secrets", True),
        ("from os import urandom", True),
        ("import scipy.stats", True),
        ("import numpy as np\nz = np.random.default_rng()", True),
        ("import numpy as np\nz = np.random.default_rng(None)", True),
        ("import numpy as np\nz = np.random.normal()", True),
        ("import numpy as np\nz = np.random.default_rng(7).normal()", True),
        ("import numpy as np\nz = np.random.default_rng(7).integers(2)", False),
        ("def f(rng):\n    return rng.laplace(3)", True),
        ("def f(rng):\n    return rng.random(3)", False),
        ("import os\nz = os.urandom(8)", True),
        ("def f():\n    return open('/dev/urandom')", True),
    ],
)
def test_the_rule_sees_what_breaks_it(code, in_pipelines):
    assert list(violations(code, False, True))
    assert bool(list(violations(code, True, False))) == in_pipelines


def test_entropy_may_be_a_default_and_nothing_else():
    default = "import os\ndef sample(n, random_bytes=os.urandom):\n    return random_bytes(n)"
    assert list(violations(default, False, True)) == []
    assert list(violations(default, False, False)) == ["line 2: os.urandom"]
    assert list(violations(default + " + os.urandom(n)", False, True)) == ["line 3: os.urandom"]


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(5), Fraction(10**9)])
@pytest.mark.parametrize("law", [DiscreteLaplace, DiscreteGaussian, RoundedGaussian])
@dimensions
def test_noise_is_integers(law, scale, dimension):
    noise = SystemNoise(law(scale), dimension)
    drawn = noise.draw(1, 50)
    assert drawn.dtype == np.int64
    one = noise.one(51)
    assert type(one) is int if dimension is None else one.dtype == np.int64


# Every release is a function of y = q(x) + z, integers


def take_steps(mechanism, xs, noise, dimension):
    state, values = mechanism.init(dimension), []
    for x in xs.tolist() if dimension is None else xs:
        state, value = mechanism.step(state, x, noise)
        values.append(value)
    return np.array(values)


def encoded(mechanism, xs):
    """q(x): R x, or what the release without noise says that it was rounded to."""
    n = len(xs)
    if not isinstance(mechanism, RoundedMechanism):
        whole = mechanism.encoder(n).astype(np.int64)
        assert np.array_equal(whole, mechanism.encoder(n))
        return whole @ xs
    released = mechanism.release(xs, Script(np.zeros((n, *np.shape(xs)[1:]))))
    q = np.linalg.solve(mechanism.decoder(n), released)
    assert np.abs(q - np.rint(q)).max() < 1e-3
    return np.rint(q).astype(np.int64)


def pairs(mechanism, n, dimension, spread, noise=2**30):
    """Two streams with noises that make one y of them; and one of the noises moved by 1."""
    shape = (n,) if dimension is None else (n, dimension)
    for seed in range(3):
        rng = np.random.default_rng((n, seed))
        xs, others = rng.integers(-spread, spread + 1, (2, *shape))
        if seed == 2:  # neighbours
            others = xs.copy()
        others[n // 3] = xs[n // 3] + 1
        z = random_script(mechanism.draws(n), dimension, seed, spread=noise).z
        moved = z + encoded(mechanism, xs) - encoded(mechanism, others)
        yield xs, others, z, moved


def released(mechanism, xs, z, dimension):
    """By `release` and by `step`, as bytes: they agree to the last bit as well."""
    whole = np.asarray(mechanism.release(xs, Script(z)))
    steps = take_steps(mechanism, xs, Script(z), dimension)
    assert whole.dtype == steps.dtype
    assert whole.tobytes() == steps.tobytes()
    return whole.tobytes()


def shows_only_y(mechanism, n, dimension, spread=1000, noise=2**30):
    return all(
        released(mechanism, xs, z, dimension) == released(mechanism, others, moved, dimension)
        for xs, others, z, moved in pairs(mechanism, n, dimension, spread, noise)
    )


@pytest.mark.slow
@every
@dimensions
@pytest.mark.parametrize("horizon", [5, 40, 100])
def test_streams_and_noises_that_give_one_y_give_one_release(kind, dimension, horizon):
    """Bit for bit: a release holds nothing of the stream that integers plus noise do not."""
    mechanism = kind(horizon)
    for n in {1, horizon // 2, horizon}:
        # What is large has lost the last digits, where something could be left.
        for spread, noise in ((1, 50), (1, 2**30), (2**30, 2**30)):
            assert shows_only_y(mechanism, n, dimension, spread, noise), (n, spread, noise)


@every
@dimensions
def test_integer_encoders_release_integers_or_weigh_integers(kind, dimension):
    mechanism = kind(40)
    xs = np.random.default_rng(1).integers(-9, 10, (40,) if dimension is None else (40, dimension))
    noise = random_script(mechanism.draws(40), dimension)
    values = mechanism.release(xs, noise)
    weighs = issubclass(kind, RoundedMechanism | mechanisms.Honaker | mechanisms.BridgedKAry)
    assert values.dtype == (np.float64 if weighs else np.int64)
    if not weighs:
        exact = mechanism.decoder(40).astype(np.int64) @ noise.z
        assert np.array_equal(values, np.cumsum(xs, axis=0) + exact)


@every
@dimensions
def test_so_it_is_of_counters_with_units_and_resolutions(kind, dimension):
    """Releases of a counter: inputs on a fine lattice, and a unit that is no double exactly.

    So supports are equal: noise has any whole number as its value, and what one input gives under
    some noise any other gives under another, to the last bit. Whatever doubles inputs are.
    """
    horizon = 40
    law = "gaussian" if "gaussian" in kind(horizon).laws else "laplace"
    budget = {"gaussian": dp.ZCDP(0.5), "laplace": dp.PureDP(1)}[law]
    counter = dp.calibrate(kind(horizon), budget, dp.Change(-3, 3), dimension, unit=0.1)
    fine = counter.resolution
    for xs, others, z, moved in pairs_of_counters(counter, horizon, dimension):
        bulk = [counter.release(x, Script(noise)) for x, noise in ((xs, z), (others, moved))]
        assert bulk[0].tobytes() == bulk[1].tobytes()
        one_by_one = []
        for x, noise in ((xs, z), (others, moved)):
            state, script, values = counter.init(), Script(noise), []
            for row in x:
                state, value = counter.step(state, row, script)
                values.append(value)
            one_by_one.append(np.array(values))
        assert one_by_one[0].tobytes() == one_by_one[1].tobytes() == bulk[0].tobytes()
    assert fine > 1 or not issubclass(kind, RoundedMechanism)


def pairs_of_counters(counter, n, dimension):
    shape = (n,) if dimension is None else (n, dimension)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        if seed < 3:
            xs, others = rng.uniform(-4, 4, (2, *shape))  # beyond the bounds, and off the lattice
        else:
            xs, others = rng.choice(HOSTILE, (2, *shape))
        z = random_script(counter.mechanism.draws(n), dimension, seed, spread=2**30).z
        q, other = (
            encoded(counter.mechanism, counter.quantise_all(x) * counter.resolution)
            for x in (xs, others)
        )
        yield xs, others, z, z + q - other


# The check itself: it sees noise that is added to exact sums, or to what is not rounded


class ExactSums(mechanisms.NormalizedBLT):
    """Releases A x + L z: the same law, and off the lattice it is the bare stream."""

    def release(self, xs, noise):
        n = len(xs)
        return np.cumsum(xs, axis=0) + self.decoder(n) @ noise.draw(1, n)


def same_releases(mechanism, cases):
    return [
        mechanism.release(xs, Script(z)).tobytes()
        == mechanism.release(others, Script(moved)).tobytes()
        for xs, others, z, moved in cases
    ]


def test_the_check_sees_noise_that_is_added_to_exact_sums():
    cases = list(pairs(mechanisms.NormalizedBLT(40), 40, None, 1000))
    assert all(same_releases(mechanisms.NormalizedBLT(40), cases))
    assert not any(same_releases(ExactSums(40), cases))


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        (mechanisms.SquareRoot, "square_root"),
        (mechanisms.Binned, "binned"),
    ],
)
def test_the_check_sees_encoded_values_that_are_not_rounded(kind, module, monkeypatch):
    """Rounded to multiples of 1/8, say."""
    cases = list(pairs(kind(40), 40, None, 1000))
    monkeypatch.setattr(
        f"beam_dpcount.mechanisms.{module}.to_integers", lambda value: np.rint(value * 8) / 8
    )
    assert not any(same_releases(kind(40), cases))


@pytest.mark.parametrize("kind", [mechanisms.BLT, mechanisms.NormalizedBLT])
def test_the_check_sees_encoded_values_of_whole_numbers_that_are_not_rounded(kind):
    cases = list(pairs(kind(40), 40, None, 1000))
    assert all(same_releases(kind(40), cases))
    assert not any(same_releases(unrounded(kind)(40), cases))
