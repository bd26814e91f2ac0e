"""Transforms as black boxes: one pipeline each, whose keys are trials of two neighbours.

Neighbours are taken by brute force. All short streams of a few contents go through the transform
once, with noise of 0, a key each; of all pairs that its relation makes neighbours, those are taken
whose exact releases differ the most for the noise.
"""

from __future__ import annotations

import itertools
import pickle
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np

import beam_dpcount as dp
from beam_dpcount.local.transforms import MakeMessages
from beam_dpcount.noise.entropy import Entropy, SystemEntropy
from beam_dpcount.statistics import Words
from beam_dpcount.transforms.ticks import TickNumbers
from tests.audit import bounds
from tests.audit.classifier import learned
from tests.audit.counters import TIGHT
from tests.runners import SECOND, Row, feed
from tests.scripted import ScriptedEntropy
from tests.sentences import counted

BUDGET = dp.ZCDP(2.0)
STEPS, TICK = 4, 10
TRIALS = 40_000  # of both neighbours together
FloatArray = np.ndarray
Stream = tuple[Any, ...]  # what its elements or ticks hold; None: nothing
CLOCK: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": STEPS}


def who(payload: Any) -> Any:
    return payload["who"]


def number(payload: Any) -> Any:
    return payload["n"]


@dataclass(frozen=True)
class Case:
    """A transform, and among which streams its worst neighbours are sought.

    Fields:
      make: of an entropy and of all keys.
      contents: what an element, or a tick, may hold but nothing.
      relation: "replace": any content is another one; "add": or is there or not; "all": all of one
        content are there or not.
      ticks: whether it counts at a clock.
      most: contents of a stream at most.
      steps: of a stream.
      rho: of its budget; a larger one where short streams come to a part of its noise only.
      base: what each key has beside its stream, in the first tick.
    """

    make: Callable[[Any, list[str]], Any]
    contents: Sequence[Any]
    relation: str = "replace"
    ticks: bool = False
    most: int = 9
    steps: int = STEPS
    rho: float = 2.0
    base: Any = None

    def streams(self) -> list[Stream]:
        every = itertools.product([None, *self.contents], repeat=self.steps)
        return [s for s in every if self.steps - s.count(None) <= self.most]

    def neighbours(self, streams: Sequence[Stream]) -> Iterator[tuple[Stream, Stream]]:
        there = set(streams)
        for stream in streams:
            if self.relation == "all":
                for x in set(stream) - {None}:
                    yield stream, tuple(None if y == x else y for y in stream)
                continue
            for i in range(self.steps):
                for x in [None] if self.relation == "add" else [None, *self.contents]:
                    other = (*stream[:i], x, *stream[i + 1 :])
                    if x != stream[i] and other in there:
                        yield stream, other

    def rows(self, streams: Iterable[tuple[str, Stream]]) -> Iterator[Row]:
        """A key's stream as events: an empty step of a clock has none."""
        for key, stream in streams:
            if self.base is not None:
                yield key, self.base, SECOND
            for i, x in enumerate(stream):
                if self.ticks and x is None:
                    continue
                payload = {"who": f"of {key}", "n": 1} if x is PERSON else x
                yield key, payload, (TICK * i + 5) * SECOND


def graph(kind: Any, *given: Any, rho: float = 2.0, **more: Any) -> Callable[..., Any]:
    return lambda entropy, keys: kind(dp.ZCDP(rho), LONGER, 4, *given, entropy=entropy, **more)


def at_ticks(kind: Any, **more: Any) -> Callable[[Any, list[str]], Any]:
    return lambda entropy, keys: kind(BUDGET, **CLOCK, keys=keys, entropy=entropy, **more)


def of_selected(entropy: Any, _: list[str]) -> Any:
    """Of keys that so many events have shown at the first tick."""
    many = beam.FlatMap(lambda event: [(event[0], 1)] * (20 if event[1] == SHOWN else 1))
    counted = TickNumbers(BUDGET, **CLOCK, keys=dp.SelectKeys(1e-6), entropy=entropy)
    return "Many" >> many.with_output_types(tuple[str, Any]) | counted


def bounded(entropy: Any, keys: list[str]) -> Any:
    counts = {"count": at_ticks(TickNumbers, value=number)(entropy, keys)}
    return dp.BoundUsers(dp.Users(who, 2, per_key=2), counts) | Only("count")


class Only(beam.PTransform):
    """One of several collections."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def expand(self, made: Any) -> Any:
        return made[self._name]


LONGER = 5  # streams of graphs, of which one edge changes more
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3))
COSTS = ((0, 1, 1), (0, 1, 3), (0, 2, 3), (1, 2, 1))
PERSON = "an event of the one person of its key"
SELECTED, SHOWN = "TickCount, keys selected", "enough events to show a key"
COUNT_AND_SUM = [dp.Count(), dp.Sum("n", 0, 1)]
CASES: dict[str, Case] = {
    "PrefixCount": Case(lambda e, _: dp.PrefixCount(BUDGET, STEPS, entropy=e), [0, 1]),
    "Histogram": Case(lambda e, _: dp.Histogram(BUDGET, STEPS, ["a", "b"], entropy=e), "ab"),
    "SubstringCount": Case(
        lambda e, _: dp.SubstringCount(BUDGET, STEPS, ["a", "b"], 2, entropy=e), "ab"
    ),
    "EpisodeCount": Case(
        lambda e, _: dp.EpisodeCount(BUDGET, STEPS, ["a", "b"], 2, entropy=e), "ab"
    ),
    "StatisticCount": Case(
        lambda e, _: dp.StatisticCount(BUDGET, STEPS, Words("ab", 2), entropy=e), "ab"
    ),
    **{
        kind.__name__: Case(
            graph(kind, *given, rho=rho, max_degree=2), contents, "all", steps=LONGER, rho=rho
        )
        for kind, given, contents, rho in (
            (dp.TriangleCount, (), EDGES, 8.0),
            (dp.KStarCount, (2,), EDGES, 4.0),
            (dp.HighDegreeCount, (1,), EDGES, 12.0),
            (dp.DegreeHistogram, (), EDGES, 4.0),
            (dp.SpanningForestCost, (3,), COSTS, 20.0),
        )
    },
    "EdgeCount": Case(graph(dp.EdgeCount), EDGES, "all", steps=LONGER),
    "CutGraph": Case(graph(dp.CutGraph), EDGES, "add", steps=LONGER),
    "TickCount": Case(at_ticks(TickNumbers), [1], "add", True),
    SELECTED: Case(of_selected, [1], "add", True, base=SHOWN),
    "TickCount, last ticks": Case(at_ticks(counted, last=2), [1], "add", True),
    "TickCount, people": Case(
        at_ticks(counted, what=dp.People(), users=dp.Users(who, 1)), [PERSON], "all", True
    ),
    "TickCount, several": Case(at_ticks(counted, what=COUNT_AND_SUM), [PERSON], "add", True),
    "BoundUsers": Case(bounded, [PERSON], "all", True, most=2),
}


# Pipelines


class _Note(beam.DoFn):
    """Writes keys, steps and numbers of releases to a file a bundle."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def start_bundle(self) -> None:
        self._seen: list[tuple[str, int, Any]] = []

    def process(self, release: Any) -> None:
        values = [*release.values.values()] if hasattr(release, "names") else release.value
        self._seen.append((release.key, release.step, values))

    def finish_bundle(self) -> None:
        Path(self._directory, uuid.uuid4().hex).write_bytes(pickle.dumps(self._seen))


def noted(rows: list[Row], count: Any) -> list[Any]:
    """Key, step and number of each release of a pipeline."""
    with tempfile.TemporaryDirectory() as scratch:
        pipeline = beam.Pipeline("FnApiRunner")
        _ = pipeline | feed(rows, tuple[str, Any]) | count | beam.ParDo(_Note(scratch))
        pipeline.run().wait_until_finish()
        return [one for file in Path(scratch).iterdir() for one in pickle.loads(file.read_bytes())]


def released(case: Case, entropy: Any, streams: Sequence[Stream]) -> FloatArray:
    """All releases of streams, shape (streams, steps times numbers)."""
    keys = [f"{i:06}" for i in range(len(streams))]
    seen = noted(list(case.rows(zip(keys, streams, strict=True))), case.make(entropy, keys))
    seen.sort(key=lambda one: one[:2])
    assert [one[:2] for one in seen] == [(k, t) for k in keys for t in range(1, case.steps + 1)]
    values = np.array([one[2] for one in seen], dtype=np.float64)
    return values.reshape(len(streams), -1)


@dataclass(frozen=True)
class Pair:
    """Neighbours, the difference of their exact releases, and how to whiten noise of releases."""

    streams: tuple[Any, Any]
    change: FloatArray
    whiten: FloatArray

    @property
    def mu(self) -> float:
        """How many standard deviations of the noise they are apart."""
        return float(np.linalg.norm(self.change @ self.whiten))

    def score(self, trials: FloatArray) -> FloatArray:
        """The log-likelihood ratio under Gaussian noise, but for a constant."""
        return np.asarray(trials @ (self.whiten @ (self.whiten.T @ self.change)))


def worst_pair(case: Case) -> Pair:
    """The neighbours whose exact releases are the furthest apart for their noise.

    Its covariance is estimated, by trials of their own.
    """
    streams = case.streams()
    exact = released(case, ScriptedEntropy(0), streams)
    place = {stream: i for i, stream in enumerate(streams)}
    one, other = np.array([(place[a], place[b]) for a, b in case.neighbours(streams)]).T
    noise = released(case, SystemEntropy(), [(None,) * case.steps] * (TRIALS // 4))
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(noise.T)))
    kept = values > 1e-6 * values.max()  # where numbers add up to a public one, noise has no spread
    whiten = vectors[:, kept] / np.sqrt(values[kept])
    changes = exact[one] - exact[other]
    best = int(np.linalg.norm(changes @ whiten, axis=1).argmax())
    return Pair((streams[one[best]], streams[other[best]]), changes[best], whiten)


# What trials prove


@dataclass(frozen=True)
class Found:
    """What is known of a transform, in rho, and in mu.

    Fields:
      rho: its budget.
      trials: keys of its pipeline that count, of each neighbour.
      pair: the mu of the worst neighbours found.
      known, mu: what the likelihood ratio proves.
      learned: what a classifier proves that knows nothing.
    """

    name: str
    rho: float
    trials: int
    pair: float | None
    known: float | None
    mu: float | None
    learned: float

    def faults(self) -> list[str]:
        """What is wrong."""
        said = [
            f"{self.name}: {way} proves rho = {proved:.4g}"
            for way, proved in (("the known statistic", self.known), ("a classifier", self.learned))
            if proved is not None and proved > self.rho
        ]
        if self.mu is not None and self.pair is not None and self.mu < TIGHT["mu"] * self.pair:
            said.append(f"{self.name}: only mu = {self.mu:.4g} is proved")
        return said


def audited(name: str, n: int = TRIALS, entropy: Entropy | None = None) -> Found:
    """What trials prove of a transform: one pipeline of n keys, half of them of each neighbour.

    A quarter of them choose the event. `entropy` is a mutant's.
    """
    case = CASES[name]
    pair = worst_pair(case)
    streams = [pair.streams[i % 2] for i in range(n)]
    trials = released(case, entropy or SystemEntropy(), streams)
    return weighed(name, case.rho, trials[::2], trials[1::2], pair)


def weighed(
    name: str, rho: float, ours: FloatArray, theirs: FloatArray, pair: Pair | None
) -> Found:
    """What trials of two neighbours prove."""
    n = len(ours)
    choosing, counting = [(x[: n // 4], x[n // 4 :]) for x in (ours, theirs)]
    choosing, counting = zip(choosing, counting, strict=True)

    def proves(measure: bounds.Measure, score: Any) -> float:
        ones, others = ([score(trials) for trials in made] for made in (choosing, counting))
        return bounds.proved(measure, (ones[0], ones[1]), (others[0], others[1]))

    return Found(
        name,
        rho,
        len(counting[0]),
        pair and pair.mu,
        pair and proves(bounds.rho, pair.score),
        pair and proves(bounds.mu, pair.score),
        proves(bounds.rho, learned(*choosing)),
    )


# Local learning: what is released of a client is its message


def slopes(client: Any, points: FloatArray) -> FloatArray:
    return np.sign(points - client)


LOCAL: dict[str, Callable[[], Any]] = {
    "LocalMedian": lambda: dp.local.LocalMedian(BUDGET, 4),
    "LocalConvexRisk": lambda: dp.local.LocalConvexRisk(BUDGET, 4, gradient=slopes),
}
HELD = (0.0, 0.3, 0.6, 1.0, None)  # by a client


class _NoteMessage(_Note):
    def process(self, message: FloatArray) -> None:
        self._seen.append(message)  # type: ignore[arg-type]


def messages(name: str, held: Any, n: int) -> FloatArray:
    """What n clients send that hold the same, shape (n, numbers)."""
    with tempfile.TemporaryDirectory() as scratch:
        pipeline = beam.Pipeline("FnApiRunner")
        clients = pipeline | beam.Create([[held] * 1000] * (n // 1000), reshuffle=False)
        sent = clients | beam.ParDo(MakeMessages(LOCAL[name]().learner, None))
        _ = sent | beam.ParDo(_NoteMessage(scratch))
        pipeline.run().wait_until_finish()
        seen = [one for file in Path(scratch).iterdir() for one in pickle.loads(file.read_bytes())]
    return np.array(seen, dtype=np.float64)


def audited_local(name: str, n: int = TRIALS) -> Found:
    """What trials prove of a transform of local learning: a message a trial, n in all."""
    first = {held: messages(name, held, n // 4) for held in HELD}
    values, vectors = np.linalg.eigh(np.cov(first[None].T))
    kept = values > 1e-6 * values.max()
    whiten = vectors[:, kept] / np.sqrt(values[kept])
    pairs = [
        Pair((one, other), first[one].mean(axis=0) - first[other].mean(axis=0), whiten)
        for one, other in itertools.combinations(HELD, 2)
    ]
    pair = max(pairs, key=lambda pair: pair.mu)
    ours, theirs = (messages(name, held, n // 2) for held in pair.streams)
    return weighed(name, BUDGET.rho, ours, theirs, pair)
