"""System noise hands out every draw once: across threads, forks, copies, keys and processes."""

import copy
import itertools
import multiprocessing
import os
import pickle
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import beam_dpcount
from beam_dpcount.noise.entropy import SystemEntropy, SystemNoise, _forget_all
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law
from tests.made_up import makes_up_logs

PACKAGE = Path(beam_dpcount.__file__).parent
PROCESS = 10**12  # draws of the stub below are process id * PROCESS + a count
MARKER = -987_654_321

_counts = itertools.count()


@dataclass(frozen=True)
class Numbered(Law):
    """A law whose draws never repeat and name the process that drew them. One of several."""

    which: int = 0

    @property
    def variance(self) -> float:
        return 1.0

    @property
    def scale(self) -> float:
        return 1.0

    def pmf(self, x: Any) -> Any:
        raise NotImplementedError

    def sample(self, n: int, random_bytes: Callable[[int], bytes] = os.urandom) -> np.ndarray:
        assert random_bytes is os.urandom
        return np.array([os.getpid() * PROCESS + next(_counts) for _ in range(n)], dtype=np.int64)


def marked(dimension: int | None = None) -> SystemNoise:
    """Noise that holds samples which nobody but itself may ever hand out."""
    noise = SystemNoise(Numbered(), dimension)
    noise.one(1)
    assert noise._pool
    noise._pool[:] = [MARKER if dimension is None else np.full(dimension, MARKER)] * 1000
    assert np.all(noise.one(2) == MARKER)
    return noise


@pytest.fixture
def eager_threads() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.slow
@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("dimension", [None, 3])
def test_threads_never_share_a_draw(dimension: int | None) -> None:
    noise, each = SystemNoise(Numbered(), dimension), 20_000
    start, taken = threading.Barrier(8), [[] for _ in range(8)]

    def take(mine: list[Any]) -> None:
        start.wait()
        for i in range(each if dimension is None else each // 4):
            mine.append(noise.one(i) if i % 1000 else noise.draw(i, 1)[0])

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = np.array([v for mine in taken for v in mine]).ravel()
    assert len(values) == 8 * (each if dimension is None else each // 4 * 3)
    assert len(np.unique(values)) == len(values)


def test_draw_and_one_never_share_a_draw() -> None:
    noise = SystemNoise(Numbered())
    values: list[int] = []
    for i in range(1, 12_000, 3):
        values += [noise.one(i), *noise.draw(i + 1, 2).tolist()]
    assert len(set(values)) == len(values) == 12_000


def test_no_way_to_draw_shares_a_draw_with_another() -> None:
    draws = SystemEntropy().draws(Numbered(), None, "")
    values: list[int] = []
    for i in range(40):
        noise = draws.noise("key", None, b"")
        values += [noise.one(1), *noise.draw(1, 20).tolist(), *noise.draw(1, 300).tolist()]
        for dimension in (7, 256 + i % 12, 300):
            vectors = draws.of_keys(["key"] * dimension, None, b"")
            values += [*vectors.one(1).tolist(), *vectors.draw(1, 2).ravel().tolist()]
    assert len(set(values)) == len(values) > 40 * 1000


def test_vectors_of_numbers_are_left_behind_by_copies() -> None:
    noise = SystemNoise(Numbered())
    noise.vectors(300)._pool[:] = [np.full(300, MARKER)] * 9
    for duplicate in (copy.copy, copy.deepcopy, by_pickle):
        assert (duplicate(noise).vectors(300).one(1) != MARKER).all()
    assert (noise.vectors(300).one(1) == MARKER).all()
    assert str(MARKER) not in repr(noise)


@dataclass(frozen=True)
class Sized(Numbered):
    """Notes how many draws were made at once."""

    def sample(self, n: int, random_bytes: Callable[[int], bytes] = os.urandom) -> np.ndarray:
        _sizes.append(n)
        return super().sample(n, random_bytes)


_sizes: list[int] = []


def sizes_of(draw: Callable[[], object], times: int) -> list[int]:
    _sizes.clear()
    for _ in range(times):
        draw()
    return list(_sizes)


def test_pools_are_filled_by_ever_more_at_once() -> None:
    """As a draw of 2^15 costs half, or a quarter, of one of 1000."""
    numbers = SystemNoise(Sized())
    filled = [4096, 8192, 16384, 32768, 32768]
    assert sizes_of(lambda: numbers.one(1), sum(filled)) == filled
    vectors = SystemNoise(Sized(), 1000)
    assert sizes_of(lambda: vectors.one(1), 124) == [4000, 8000, 16000, 32000, 32000, 32000]
    large = SystemNoise(Sized(), 100_000)
    assert sizes_of(lambda: large.one(1), 3) == [100_000] * 3


def test_a_few_draws_come_from_the_pool() -> None:
    numbers, vectors = SystemNoise(Sized()), SystemNoise(Sized(), 50)
    assert sizes_of(lambda: numbers.draw(1, 20), 204) == [4096]
    assert sizes_of(lambda: numbers.draw(1, 256), 3) == [256] * 3
    assert sizes_of(lambda: numbers.draw(1, 0), 1) == [0]
    assert sizes_of(lambda: vectors.draw(1, 5), 16) == [4050]
    assert sizes_of(lambda: vectors.draw(1, 6), 2) == [300] * 2


def test_vectors_of_one_length_come_from_a_pool() -> None:
    """But a length that is met once takes no more than its own draws."""
    draws = SystemEntropy().draws(Sized(), None, "")

    def step(dimension: int) -> object:
        return draws.of_keys(["key"] * dimension, None, b"").one(1)

    assert sizes_of(lambda: step(1000), 31) == [1000, 2000, 4000, 8000, 16000]
    assert [sizes_of(lambda n=n: step(n), 1) for n in range(300, 340)] == [  # type: ignore[misc]
        [n] for n in range(300, 340)
    ]
    noise: Any = draws.noise("", None, b"")
    assert len(noise._vectors) <= 8
    assert sizes_of(lambda: step(255), 16) == [4096]  # a few: put together from the numbers' pool


@pytest.mark.parametrize("law", [DiscreteLaplace(Fraction(3)), DiscreteGaussian(Fraction(2**40))])
def test_shapes_and_types(law: Law) -> None:
    scalar = SystemNoise(law)
    assert type(scalar.one(1)) is int
    for n in (0, 1, 5):
        assert scalar.draw(1, n).shape == (n,)
        assert scalar.draw(1, n).dtype == np.int64
    for dimension in (1, 4, 10_000):  # the last is more than one block
        vector = SystemNoise(law, dimension)
        for coordinate in (1, 2):
            assert vector.one(coordinate).shape == (dimension,)
            assert vector.one(coordinate).dtype == np.int64
        assert vector.draw(1, 3).shape == (3, dimension)
        assert vector.draw(1, 0).shape == (0, dimension)


def test_a_vector_draw_is_its_owners_alone() -> None:
    """Writing to one draw changes no other one."""
    noise = SystemNoise(Numbered(), 4)
    first = noise.one(1)
    first[:] = MARKER
    assert not any((noise.one(i) == MARKER).any() for i in range(2, 1200))


@pytest.mark.parametrize("dimension", [None, 2])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_inherits_no_samples(dimension: int | None) -> None:
    noise = marked(dimension)
    from_entropy = SystemEntropy().source(Numbered(), dimension)("key", None)
    before = np.ravel(from_entropy.one(1))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            drawn = [np.ravel(n.one(i)) for i in range(50) for n in (noise, from_entropy)]
            os.write(write, np.concatenate(drawn).astype(np.int64).tobytes())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), dtype=np.int64)
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == 100 * (dimension or 1)
    assert (theirs // PROCESS == child).all()
    # The parent goes on with what it has.
    assert np.all(noise.one(3) == MARKER)
    ours = np.ravel(from_entropy.one(2))
    assert (ours // PROCESS == os.getpid()).all()
    assert not set(ours.tolist()) & set(before.tolist())


def by_pickle(noise: SystemNoise) -> SystemNoise:
    return pickle.loads(pickle.dumps(noise))


def all_pools(dimension: int | None) -> dict[str, SystemNoise]:
    """A pool of every way to make one, each holding samples that nobody else may hand out."""
    first = SystemNoise(Numbered(), dimension)
    from_entropy = SystemEntropy().source(Numbered(), dimension)("key", None)
    pools = {
        "made": first,
        "for_law": first.for_law(Numbered(1)),
        "for_law of for_law": first.for_law(Numbered(1)).for_law(Numbered(2)),
        "entropy": from_entropy,
        "for_law of entropy": from_entropy.for_law(Numbered(3)),
        "copy": copy.copy(first),
        "deepcopy": copy.deepcopy(first),
        "pickle": by_pickle(first),
        "for_law of pickle": by_pickle(first).for_law(Numbered(4)),
        "pickle of for_law": by_pickle(first.for_law(Numbered(5))),
    }
    if dimension is not None:
        numbers = SystemNoise(Numbered(6))
        pools["vectors of numbers"] = numbers.vectors(dimension)
        pools["vectors of for_law"] = numbers.for_law(Numbered(7)).vectors(dimension)
        pools["for_law of vectors"] = pools["vectors of numbers"].for_law(Numbered(8))
    assert len(set(map(id, pools.values()))) == len(pools)
    for noise in pools.values():
        noise.one(1)
        noise._pool[:] = [MARKER if dimension is None else np.full(dimension, MARKER)] * 99  # type: ignore[attr-defined]
    # A law's pool is one and the same, so that a marker in it is met again.
    assert first.for_law(Numbered(1)) is pools["for_law"]
    return pools


def next_draws(pools: dict[str, SystemNoise]) -> dict[str, list[int]]:
    drawn = {name: [noise.one(i) for i in range(20)] for name, noise in pools.items()}
    return {name: np.ravel(values).tolist() for name, values in drawn.items()}


def by_fork(pools: dict[str, SystemNoise]) -> dict[str, list[int]]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, pickle.dumps(next_draws(pools)))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = pickle.loads(pipe.read())
    assert os.waitpid(child, 0)[1] == 0
    return theirs


def by_process(pools: dict[str, SystemNoise]) -> dict[str, list[int]]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=lambda: theirs.send(next_draws(pools)))
    child.start()
    drawn = ours.recv()
    child.join(60)
    assert child.exitcode == 0
    return drawn


@pytest.mark.parametrize("dimension", [None, 2])
@pytest.mark.parametrize("forked", [by_fork, by_process])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_no_pool_however_made_is_shared_with_a_forked_child(
    forked: Callable[[dict[str, SystemNoise]], dict[str, list[int]]], dimension: int | None
) -> None:
    pools = all_pools(dimension)
    theirs, ours = forked(pools), next_draws(pools)
    for name in pools:
        assert set(ours[name]) == {MARKER}, name  # it goes on with what it has
        assert MARKER not in theirs[name], name
        assert os.getpid() not in {value // PROCESS for value in theirs[name]}, name
    drawn = [value for values in theirs.values() for value in values]
    assert len(set(drawn)) == len(drawn) == 20 * len(pools) * (dimension or 1)


@dataclass(frozen=True)
class Forking(Numbered):
    """Its first draws are over when the process forks: what they gave is in the child, too."""

    def sample(self, n: int, random_bytes: Callable[[int], bytes] = os.urandom) -> np.ndarray:
        drawn = super().sample(n, random_bytes)
        if not _forked:
            read, write = os.pipe()
            _forked.append(os.fork())
            _forked.extend((read, write))
        return drawn


_forked: list[int] = []  # in the parent the child's id, else 0; and the ends of a pipe


@pytest.mark.parametrize("dimension", [None, 2])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_a_pool_is_filled_shares_nothing(dimension: int | None) -> None:
    """As a signal handler may."""
    _forked.clear()
    try:
        value = np.ravel(SystemNoise(Forking(), dimension).one(1))
    except BaseException:
        if _forked[:1] == [0]:
            os._exit(1)  # or the child would go on with the tests
        raise
    child, read, write = _forked
    if child == 0:
        try:
            os.write(write, np.asarray(value, dtype=np.int64).tobytes())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), dtype=np.int64)
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == (dimension or 1)
    assert (theirs // PROCESS == child).all()
    assert (value // PROCESS == os.getpid()).all()


@pytest.mark.parametrize("dimension", [None, 2])
def test_no_pool_however_made_travels_in_a_pickle_or_a_copy(dimension: int | None) -> None:
    pools = all_pools(dimension)
    for duplicate in (copy.copy, copy.deepcopy, by_pickle):
        twins = {name: duplicate(noise) for name, noise in pools.items()}
        laws = {name: twin.for_law(Numbered(1)) for name, twin in twins.items()}
        for theirs in (next_draws(twins), next_draws(laws)):
            for name, values in theirs.items():
                assert MARKER not in values, name
    assert all(set(values) == {MARKER} for values in next_draws(pools).values())


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, by_pickle])
@pytest.mark.parametrize("dimension", [None, 2])
def test_copies_leave_the_samples_behind(
    duplicate: Callable[[SystemNoise], SystemNoise], dimension: int | None
) -> None:
    noise = marked(dimension)
    assert str(MARKER) not in repr(noise)
    twin = duplicate(noise)
    assert np.shape(twin.one(1)) == (() if dimension is None else (dimension,))
    assert not any(np.any(twin.one(i) == MARKER) for i in range(2, 100))
    assert np.all(noise.one(3) == MARKER)
    ours, theirs = noise._pool, twin._pool
    assert ours is not theirs
    # Twins that are filled afterwards share nothing either.
    ours.clear()
    values = [v for i in range(2000) for v in np.ravel([noise.one(i), twin.one(i)]).tolist()]
    assert len(set(values)) == len(values)


def test_a_pickle_holds_no_samples() -> None:
    noise = marked()
    assert len(pickle.dumps(noise)) == len(pickle.dumps(SystemNoise(Numbered())))


def test_forget_drops_every_sample() -> None:
    noise = marked()
    _forget_all()
    assert noise.one(1) != MARKER


def test_repr_says_what_it_is() -> None:
    law = DiscreteLaplace(Fraction(3, 2))
    assert repr(SystemNoise(law, 4)) == f"SystemNoise({law!r}, dimension=4)"
    assert repr(SystemEntropy()) == "SystemEntropy()"


@pytest.mark.parametrize("dimension", [None, 3])
def test_keys_and_windows_never_share_a_draw(dimension: int | None) -> None:
    source = SystemEntropy().source(Numbered(), dimension)
    again = SystemEntropy().source(Numbered(), dimension)
    values: list[int] = []
    for i in range(1500):
        for make in (source, again):
            for key, window in (("a", 1), ("a", 2), ("b", 1)):
                noise = make(key, window)
                values += np.ravel(noise.one(i)).tolist()
                values += np.ravel(noise.draw(i, 1)).tolist() if i % 7 == 0 else []
    assert len(set(values)) == len(values) > 9000


def test_entropy_is_a_plain_value_for_workers() -> None:
    entropy = pickle.loads(pickle.dumps(SystemEntropy()))
    assert type(entropy) is SystemEntropy
    assert not entropy.__dict__


NORMAL = DiscreteGaussian(Fraction(2**60))
_shared = SystemNoise(NORMAL)


def send_draws(pipe: Any) -> None:
    fresh = SystemEntropy().source(NORMAL, None)("key", None)
    pipe.send([_shared.one(i) for i in range(500)] + fresh.draw(1, 500).tolist())
    pipe.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_draw_apart(method: str) -> None:
    """Two children and their parent, 3500 draws of scale 2^30: a chance of 2e-3 of some equal
    pair, so 3 equal values are what is refused (a chance below 1e-8)."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    context = multiprocessing.get_context(method)
    values = [_shared.one(i) for i in range(500)]
    pipes, children = [], []
    for _ in range(2):
        ours, theirs = context.Pipe(duplex=False)
        children.append(context.Process(target=send_draws, args=(theirs,)))  # type: ignore[attr-defined]
        children[-1].start()
        theirs.close()
        pipes.append(ours)
    for pipe, child in zip(pipes, children, strict=True):
        values += pipe.recv()
        child.join(60)
        assert child.exitcode == 0
    values += [_shared.one(i) for i in range(1000)]
    assert len(values) == 3500
    assert len(values) - len(set(values)) < 3
    assert np.std(values) == pytest.approx(2**30, rel=0.08)  # 6.7 standard errors


def test_the_package_holds_no_seeded_or_scripted_randomness() -> None:
    forbidden = re.compile(
        r"default_rng|random\.Random|seed\(|np\.random|numpy\.random|RandomState"
        r"|^\s*(import|from) (random|tests)\b",
        re.MULTILINE,
    )
    sources = sorted(PACKAGE.rglob("*.py"))
    invented = [path for path in sources if makes_up_logs(path)]
    users = re.compile(r"(from|import) .*\beventlog\b")
    named = {path.name for path in sources if users.search(path.read_text("utf-8"))}
    assert named - {path.name for path in invented} == {"demo.py"}
    sources = [path for path in sources if path not in invented]
    assert len(sources) >= 10
    assert PACKAGE / "noise" / "entropy.py" in sources
    offending = {str(path): forbidden.findall(path.read_text("utf-8")) for path in sources}
    assert not {path: found for path, found in offending.items() if found}
    scripted = (Path(__file__).parent / "scripted.py").read_text("utf-8")
    assert forbidden.search(scripted)  # the search finds what it is for


def test_the_public_names_offer_no_script() -> None:
    names = {*dir(beam_dpcount), *beam_dpcount.__all__, *dir(beam_dpcount.noise.entropy)}
    assert "SystemEntropy" in names
    assert not [n for n in names if re.search("script|seed|fixed|test", n, re.IGNORECASE)]
