"""`make bench`: every target of speed, size and growth, met or missed. Figures, not a test.

Whole pipelines on the local FnApiRunner, source and sink included, beside the same count without
privacy; the runner's state cache is off in both, as on production runners. CPU time, the least of
three, variants in turns. Then single steps, bytes of state, memory, growth by size, and what others
would use. Prints tables in Markdown, for docs/benchmarks.md; read ratios, which are of one run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from apache_beam.runners.portability.prism_runner import PrismRunner

import beam_dpcount as dp
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.states.codecs import statistic_codec
from benchmarks import files, growth, peers, plain
from benchmarks.growth import BUDGET, stepping
from benchmarks.timing import Figure, Note, Row, alone, best_of, markdown, seconds_of, timed
from engines import prism

HORIZON = 200_000
LONG = 2**20

# Targets: at most so many times the plain count; and microseconds, bytes, powers.
STREAMING, PRISM, BOUNDED, TICKS = 1.2, 1.3, 1.15, 1.3
# Of files: times pandas, of rows and of people; seconds from CSV; MB, libraries included; of a
# release a row, seconds and MB; times a counter's own release.
FILES, FILES_OF_PEOPLE, CSV_SECONDS, FILE_MEMORY = 2.0, 3.0, 14.0, 1100.0
COUNT_SECONDS, COUNT_MEMORY, ROWS_IN_BULK = 15.0, 1200.0, 1.15
STEP, BULK, STATE, HISTOGRAM, SLOPE = 2.0, 0.25, 128, 4.0, 1.1


@dataclass(frozen=True)
class Sizes:
    """How much is measured: the full sizes, of `--elements`, or the quick ones.

    Fields:
      elements: of a pipeline.
      keys: of which each has elements / keys.
      short: numbers of keys, and elements of each.
      ticks: keys, ticks, and events of each key and tick.
      steps, bulk: of single steps, and of one release.
      items: of a Histogram.
      memory: elements of one key, the fewer and the more.
      draws: one by one.
      growth: the sizes of `benchmarks.growth`.
      rounds: of which the best counts.
      rows: of a file; of those that Beam reads, a tenth.
    """

    elements: int = 200_000
    keys: Sequence[int] = (1, 100, 10_000)
    short: Sequence[tuple[int, int]] = ((3_000, 20), (100_000, 1))
    ticks: Sequence[tuple[int, int, int]] = ((100, 100, 1), (100, 100, 10))
    steps: int = 20_000
    bulk: int = LONG
    items: int = 1000
    memory: tuple[int, int] = (1_000_000, 4_000_000)
    draws: int = 2000
    growth: growth.Sizes = field(default_factory=growth.Sizes)
    rounds: int = 3
    rows: int = 10**7


QUICK = Sizes(
    elements=300,
    keys=(1, 10),
    short=((10, 20), (100, 1)),
    ticks=((5, 4, 1), (5, 4, 3)),
    steps=500,
    bulk=2**12,
    items=50,
    memory=(1000, 20_000),
    draws=50,
    growth=growth.Sizes(*(2**8, 2**5, 2**2, 2**5, 2**4, 2**4), many=3, rounds=1),
    rounds=1,
    rows=2000,
)


def _prefix(path: str, horizon: int = HORIZON) -> dp.PrefixCount:
    return dp.PrefixCount(BUDGET, horizon, path=path)


def _ratio(
    what: str, most: float | None, ours: float, theirs: float, each: str = "an element"
) -> Row:
    """Of times, in seconds."""
    shown = [f"{seconds * 1e6:.3g} us {each}" for seconds in (ours, theirs)]
    return Row(what, ours / theirs, most, ours=shown[0], theirs=shown[1])


def _compare(
    what: str, most: float, shape: tuple[int, int], counts: Sequence[Any], rounds: int, **how: Any
) -> Row:
    """Two counts of so many (elements, keys), the private one first; `how` is for `seconds`."""
    names = ("ours", "theirs")
    variants = {
        name: partial(plain.seconds, *shape, count, **how)
        for name, count in zip(names, counts, strict=True)
    }
    best = best_of(variants, rounds)
    ours, theirs = (best[name] / shape[0] for name in names)
    return _ratio(what, most, ours, theirs)


def _streaming(sizes: Sizes, n: int, runner: Any, where: str) -> Iterator[Figure]:
    counts = _prefix("streaming"), plain.PlainStreaming()
    for keys in sizes.keys:
        what, shape = f"streaming, {keys:,} keys, {where}", (n, keys)
        yield _compare(what, STREAMING, shape, counts, sizes.rounds, runner=runner)


def streaming(sizes: Sizes) -> Iterator[Figure]:
    """Of PrefixCount's streaming path, to a cell of state with a step and a sum."""
    yield from _streaming(sizes, sizes.elements, plain.embedded, "in process")


def grpc(sizes: Sizes) -> Iterator[Figure]:
    """The same on a worker that talks to its runner by gRPC, of half as many elements."""
    yield from _streaming(sizes, sizes.elements // 2, plain.over_grpc, "gRPC")


def on_prism(sizes: Sizes) -> Iterator[Figure]:
    """The same on Prism, with a worker in this process, whose time it is.

    Of both is taken away what a stateful DoFn takes that does nothing: what is left may be below 0,
    as ours hands over fewer elements.
    """
    binary = prism.location()
    if not binary.exists():
        yield Note("streaming on Prism was left out: python -m engines.prism builds it")
        return
    n = sizes.elements // 4
    counts = {"ours": _prefix("streaming"), "theirs": plain.PlainStreaming()}
    counts["nothing"] = plain.Identity()
    with (
        TemporaryDirectory() as scratch,
        prism.server(binary, Path(scratch, "log")) as server,
        server.within(600),
    ):
        flags = [f"--job_endpoint={server.endpoint}"]
        how: dict[str, Any] = {"runner": PrismRunner, "flags": flags}
        for keys in sizes.keys:
            variants = {
                name: partial(plain.seconds, n, keys, count, **how)
                for name, count in counts.items()
            }
            best = {name: found / n for name, found in best_of(variants, sizes.rounds).items()}
            nothing, what = best.pop("nothing"), f"streaming, {keys:,} keys, Prism"
            net = {name: seconds - nothing for name, seconds in best.items()}
            shown = [f"{best[name] * 1e6:.3g} us an element" for name in ("ours", "theirs")]
            figure = net["ours"] / max(net["theirs"], 1e-9)
            yield Row(f"{what}, net of {nothing * 1e6:.3g} us", figure, PRISM, "x", *shown)


def bounded(sizes: Sizes) -> Iterator[Figure]:
    """Of PrefixCount's bounded path, to a GroupByKey and sums in order of time."""
    counts = _prefix("bounded"), plain.PlainBounded()
    shapes = [(keys, sizes.elements // keys) for keys in sizes.keys]
    for keys, each in [*shapes, *sizes.short]:
        what, shape = f"bounded, {keys:,} keys of {each:,}", (keys * each, keys)
        yield _compare(what, BOUNDED, shape, counts, sizes.rounds)


def ticks(sizes: Sizes) -> Iterator[Figure]:
    """Of TickCount, to fixed windows, their sums, and the sums of these."""
    for path in ("bounded", "streaming"):
        for keys, many, each in sizes.ticks:
            counts = plain.ticks_of(path, keys, many, BUDGET), plain.PlainTicks(path)
            what = f"TickCount, {path}, {keys:,} keys, {many:,} ticks, events in each: {each}"
            shape, how = (keys * many * each, keys), {"releases": keys * many, "ticks": many}
            yield _compare(what, TICKS, shape, counts, sizes.rounds, **how)


def step(sizes: Sizes) -> Iterator[Figure]:
    """Of the default counter: steps, whole releases, bytes; and steps of vectors."""
    count, long = _prefix("streaming"), _prefix("streaming", LONG)
    counter: Any = count.counter
    name, noise = counter.mechanism.name, "noise included"
    seconds = seconds_of(stepping(counter, 1, sizes.steps), sizes.rounds) / sizes.steps
    yield Row(f"a step of {name}, {noise}", seconds * 1e6, STEP, "us")

    xs = np.ones(sizes.bulk, dtype=np.int64)
    seconds = seconds_of(lambda: long.counter.release(xs), sizes.rounds) / sizes.bulk
    yield Row(f"release of {sizes.bulk:,}, an element, {noise}", seconds * 1e6, BULK, "us")

    yield Row(f"a key's state at horizon {LONG:,}", max(state_bytes(long)), STATE, "bytes")

    items = dp.Histogram(BUDGET, HORIZON, [f"item-{i}" for i in range(sizes.items)])
    x, rng = np.zeros(sizes.items, dtype=np.int64), np.random.default_rng()
    x[0], steps = 1, max(1, sizes.steps // 100)

    def normal() -> None:
        total = np.zeros(sizes.items)
        for _ in range(steps):
            total = total + rng.normal(size=sizes.items)

    variants = {"ours": timed(stepping(items.counter, x, steps)), "theirs": timed(normal)}
    best = best_of(variants, sizes.rounds)
    what = f"a step of a Histogram of {sizes.items:,}, to adding a normal vector of NumPy"
    yield _ratio(what, HISTOGRAM, best["ours"] / steps, best["theirs"] / steps, "a step")


def state_bytes(count: Any, steps: int = 64, x: Any = 1) -> list[int]:
    """How many bytes a key keeps after each of the first steps, each of which counts x."""
    counter, statistic = count.counter, count.statistic
    codec, noise = statistic_codec(counter, statistic), SystemNoise(counter.law, counter.dimension)
    state, sizes = counter.init(), []
    for _ in range(steps):
        state, _ = counter.step_lattice(state, x, noise)
        sizes.append(len(codec.encode(state)))
    return sizes


def memory(sizes: Sizes) -> Iterator[Figure]:
    """What the peak memory of one key's elements grows by, bounded, beside a plain GroupByKey."""
    few, more = sizes.memory
    grown = {}
    for way in ("private", "plain"):
        peaks = [alone(way, str(n))[0] for n in (few, more)]
        grown[way] = (peaks[1] - peaks[0]) / (more - few) * 1e6
    shown = [f"{grown[way]:,.0f} bytes an element" for way in ("private", "plain")]
    what = f"peak memory, bounded, growth from {few:,} to {more:,} elements of one key"
    yield Row(what, grown["private"] / max(grown["plain"], 1e-9), None, "x", *shown)


def growing(sizes: Sizes) -> Iterator[Figure]:
    """Powers of each size there is."""
    for found in growth.growths(sizes.growth):
        yield found
        spread = f"{found.sizes[0]:,} to {found.sizes[-1]:,}"
        yield Row(f"growth: {found.what}", found.slope, SLOPE, "", theirs=spread)


def starts(sizes: Sizes) -> Iterator[Figure]:
    """What is only slow once, in a process of its own."""
    made, again, drawn, next_drawn = alone("first", str(LONG))
    for what, seconds, later in (
        (f"PrefixCount({LONG:,}), the first of a process", made, again),
        ("the first draw of its law", drawn, next_drawn),
    ):
        yield Row(what, seconds * 1e3, None, "ms", theirs=f"{later * 1e3:.2g} ms again")


def mechanisms(sizes: Sizes) -> Iterator[Figure]:
    """Steps of every mechanism, one by one and of one release."""
    xs = np.ones(sizes.bulk, dtype=np.int64)
    for kind in dp.mechanisms.ALL:
        if kind in (dp.mechanisms.SquareRoot, dp.mechanisms.Binned):
            continue  # work of order T^2
        counter = dp.calibrate(kind(sizes.bulk), BUDGET)
        steps = min(sizes.steps, sizes.bulk)
        stepped = seconds_of(stepping(counter, 1, steps), sizes.rounds) / steps
        whole = seconds_of(lambda counter=counter: counter.release(xs), sizes.rounds) / sizes.bulk
        what = f"a step of {counter.mechanism.name}, to one of a release of {sizes.bulk:,}"
        yield _ratio(what, None, stepped, whole, "a step")


def others(sizes: Sizes) -> Iterator[Figure]:
    """What others would use, or write by hand."""
    n, keys = max(1, sizes.elements // 4), sizes.keys[1]
    counts: dict[str, Any] = {"ours": _prefix("streaming"), "plain": plain.PlainStreaming()}
    counts |= {name: peers.ByHand(tree) for name, tree in peers.BY_HAND.items()}
    best = best_of(
        {name: partial(plain.seconds, n, keys, count) for name, count in counts.items()},
        sizes.rounds,
    )
    each = {name: seconds / n for name, seconds in best.items()}
    for name in peers.BY_HAND:
        what = f"streaming, {keys:,} keys, to a tree of floats by hand, {name}"
        yield _ratio(what, None, each["ours"], each[name])
        yield _ratio(f"that tree, {name}, to plain", None, each[name], each["plain"])

    law, single, many = _prefix("streaming").counter.law, sizes.draws, 10 * sizes.draws
    try:
        drawn = peers.opendp_draws(law.scale, single, many)
    except ImportError as problem:
        yield Note(f"OpenDP's draws were left out: {problem}")
    else:
        noise = SystemNoise(law)

        def draw() -> None:
            for _ in range(single):
                noise.one(1)

        ours = seconds_of(draw) / single, seconds_of(lambda: law.sample(many)) / many
        scale = f"scale {law.scale:.3g}"
        yield _ratio(f"one draw, {scale}, to OpenDP's", None, ours[0], drawn[0], "a draw")
        what = f"a draw of {many:,} at once, {scale}, to OpenDP's"
        yield _ratio(what, None, ours[1], drawn[1], "a draw")

    counter: Any = _prefix("streaming").counter
    try:
        seconds = peers.jax_steps(4, sizes.steps)
    except ImportError as problem:
        yield Note(f"jax_privacy's BLT was left out: {problem}")
    else:
        xs = np.ones(sizes.steps, dtype=np.int64)
        stepped = seconds_of(stepping(counter, 1, sizes.steps)) / sizes.steps
        whole = seconds_of(lambda: counter.release(xs)) / sizes.steps
        what = "to jax_privacy's noise of a BLT of 4 buffers, compiled"
        yield _ratio(f"a step, {what}", None, stepped, seconds[0], "a step")
        yield _ratio(f"a step of a whole release, {what}", None, whole, seconds[1], "a step")


def of_files(sizes: Sizes) -> Iterator[Figure]:
    """Commands on files of many rows, beside programs without privacy."""
    rows, few = sizes.rows, max(1, sizes.rows // 10)
    on, took, peaks = f"on {rows:,} rows of", dict[str, float](), dict[str, float]()
    shown = {"ticks": "`ticks`", "people": "`ticks --user`", "count": "`count`"}
    targets = {"ticks": FILES, "people": FILES_OF_PEOPLE, "count": None}
    with TemporaryDirectory() as folder:
        parquet, csv = files.write(Path(folder), rows)
        for task in shown:
            took[task], peaks[task] = files.measured("ours", parquet, task)
        for way, name in (("pandas", "pandas"), ("duckdb", "DuckDB")):
            try:
                for task, said in shown.items():
                    theirs, _ = files.measured(way, parquet, task)
                    most = targets[task] if way == "pandas" else None
                    times = f"{took[task]:.3g} s", f"{theirs:.3g} s"
                    what = f"{said} {on} Parquet, to {name}"
                    yield Row(what, took[task] / theirs, most, "x", *times)
            except ImportError as problem:
                yield Note(f"{name} was left out: {problem}")
        seconds, peak = files.measured("ours", csv)
        yield Row(f"`ticks` {on} CSV, CPU", seconds, CSV_SECONDS, "s")
        most = max(peaks["ticks"], peaks["people"], peak)
        yield Row(f"`ticks` {on} any kind, peak memory", most, FILE_MEMORY, "MB")
        yield Row(f"`count` {on} Parquet, CPU", took["count"], COUNT_SECONDS, "s")
        yield Row(f"`count` {on} Parquet, to `ticks`", took["count"] / took["ticks"])
        yield Row(f"`count` {on} Parquet, peak memory", peaks["count"], COUNT_MEMORY, "MB")
    with TemporaryDirectory() as folder:
        parquet, _ = files.write(Path(folder), few)
        for task, way, beside, limit in (
            ("ticks", "beam", "a plain pipeline", None),
            ("count", "beam", "a plain pipeline", None),
            ("histogram", "bulk", "its counter's release, and reading", ROWS_IN_BULK),
            ("sequences", "bulk", "its counter's release, and reading", ROWS_IN_BULK),
            ("graph", "bulk", "its counter's release, and reading", ROWS_IN_BULK),
        ):
            ours, theirs = (files.measured(one, parquet, task)[0] for one in ("ours", way))
            what = f"`{task}` on {few:,} rows of Parquet, to {beside}"
            yield _ratio(what, limit, ours / few, theirs / few, "a row")


SECTIONS: dict[str, Callable[[Sizes], Iterator[Figure]]] = {
    "streaming": streaming,
    "grpc": grpc,
    "prism": on_prism,
    "bounded": bounded,
    "ticks": ticks,
    "step": step,
    "memory": memory,
    "growth": growing,
    "starts": starts,
    "mechanisms": mechanisms,
    "peers": others,
    "files": of_files,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench", description=__doc__)
    parser.add_argument("--elements", type=int, default=Sizes.elements, help="of a pipeline")
    parser.add_argument("--rows", type=int, default=Sizes.rows, help="of a file")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=[*SECTIONS], help="these")
    parser.add_argument("--quick", action="store_true", help="sizes that show nothing, soon")
    options = parser.parse_args(argv)
    plain.quiet()
    sizes = QUICK if options.quick else Sizes(elements=options.elements, rows=options.rows)
    figures: list[Figure] = []
    begun = time.perf_counter()
    for name in options.only:
        for figure in SECTIONS[name](sizes):
            figures.append(figure)
            print(f"{time.perf_counter() - begun:.0f} s: {figure}", file=sys.stderr, flush=True)
    print(markdown(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
