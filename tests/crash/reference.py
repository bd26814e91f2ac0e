"""The uninterrupted run of a streaming count: its steps one after the other, in memory.

No engine, and no bytes: the state is never packed, written or read. What a codec, a cell, a
checkpoint or a restart does to it therefore shows in a comparison; see judge.py. The noise is the
DoFn's own, and needs its secret in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from apache_beam.transforms.window import GlobalWindow

from beam_dpcount.counters.columns import Columns, advance
from beam_dpcount.counters.people import Seen
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.intake import Excess
from beam_dpcount.dofns.releases import NodeRelease, Release
from beam_dpcount.dofns.shards import CountShards
from beam_dpcount.dofns.ticks import CountEachTick
from beam_dpcount.dofns.trees import CountEachTree
from beam_dpcount.dofns.users import BoundArriving
from beam_dpcount.dofns.windows import window_from
from beam_dpcount.noise.replay import NO_ID
from beam_dpcount.states.all_shards import shard_of
from beam_dpcount.states.all_vectors import said_of
from beam_dpcount.states.wire import PAIR, packer


def of_elements(
    counting: CountEachElement, elements: Iterable[tuple[tuple[str, Any], int]]
) -> Iterator[Any]:
    """The releases of elements and their times in microseconds, in the order of each key.

    Args:
      counting: after `setup`, of any transform that releases after elements.
    """
    intake, draws, window = counting._intake, counting._draws, GlobalWindow()
    counter, statistic = intake.counter, intake.statistic
    pack = packer(statistic.width)
    kept: dict[str, tuple[Any, Any, bytes]] = {}
    for (key, payload), micros in elements:
        if key not in kept:
            kept[key] = counter.init(), statistic.init(), draws.begin(key, window)
        state, memory, digest = kept[key]
        if counter.horizon is not None and state[0] >= counter.horizon:
            continue
        codes, _ = intake.codes(key, payload, micros)
        digest = draws.follow(digest, intake.identity(payload), pack(0, codes))
        memory, x = statistic.count(memory, codes)
        state, value = counter.step_lattice(state, x, draws.noise(key, window, digest))
        kept[key] = state, memory, digest
        if not state[0] % intake.every:
            stddev = counter.stddev_at(state)
            yield intake.release_type(key, state[0], micros, intake.shown(value), stddev)


def of_ticks(counting: CountEachTick, sums: Mapping[str, Sequence[int]]) -> Iterator[Release]:
    """The releases of each key's sum, on the lattice, of each tick; no event is late.

    Args:
      counting: after `setup`.
      sums: of all ticks, those of one window after the other.
    """
    plan, draws = counting._plan, counting._draws
    counter, clock = plan.counter, plan.clock
    for key, xs in sums.items():
        for count, origin in enumerate(clock.origins()):
            window = window_from(clock, origin)
            state, digest = counter.init(), draws.begin(key, window)
            of_window = xs[count * clock.steps : (count + 1) * clock.steps]
            for step, x in enumerate(of_window, start=1):
                capped = min(max(x, -plan.cap), plan.cap)
                digest = draws.follow(digest, NO_ID, PAIR.pack(step, capped))
                state, value = counter.step_lattice(state, capped, draws.noise(key, window, digest))
                tick, micros = clock.passed_at(origin) + step, clock.end(origin, step)
                yield Release(key, tick, micros, value, counter.stddev_at(state))


def of_tree(counting: CountEachTree, sums: Sequence[Sequence[int]]) -> Iterator[NodeRelease]:
    """The same of all nodes of a tree, given the sums of its leaves, in the global window.

    Args:
      counting: after `setup`.
    """
    plan, draws, window = counting.plan, counting._draws, GlobalWindow()
    nodes, clock = plan.nodes, plan.clock
    state, digest = nodes.init(), draws.begin("tree", window)
    for step, leaves in enumerate(np.array(sums, dtype=np.int64).T, start=1):
        digest = draws.follow(digest, NO_ID, said_of(step, leaves))
        state, values = nodes.step(state, leaves, draws.noise("tree", window, digest))
        stddevs = nodes.stddevs(np.array([nodes.counter.stddev_at(state)]))[0]
        micros = clock.end(clock.start, step)
        for path, value, stddev in zip(nodes.tree.paths, values, stddevs, strict=True):
            level = nodes.tree.level_of(path)
            yield NodeRelease([*path], level, step, micros, float(value), float(stddev))


def of_shards(counting: CountShards, sums: Mapping[str, Sequence[int]]) -> Iterator[Release]:
    """The same of keys that nobody listed, in the global window, from the tick on that shows them.

    Args:
      counting: after `setup`.
    """
    plan, draws, window = counting._plan, counting._draws, GlobalWindow()
    for shard in range(plan.shards):
        columns, digest = Columns(), draws.begin(str(shard), window)
        keys = sorted(key for key in sums if shard_of(key, plan.shards) == shard)
        for step in range(1, plan.clock.steps + 1):
            tick = {key: min(max(sums[key][step - 1], -plan.cap), plan.cap) for key in keys}
            tick = {key: x for key, x in tick.items() if x}
            digest = draws.follow(digest, NO_ID, plan.history_of(step, tick))

            def noise(keys: Sequence[str], digest: bytes = digest) -> Any:
                return draws.of_keys(keys, window, digest)

            columns, shown = advance(plan.selection, columns, tick, noise)
            for key, value in shown:
                end = plan.clock.end(plan.clock.start, step)
                yield Release(key, step, end, value, counting._stddevs[step - 1])


def of_people(
    bounding: BoundArriving,
    elements: Iterable[tuple[tuple[str, Any], int]],
    person: Callable[[Any], str],
) -> Iterator[tuple[tuple[str, Any], int]]:
    """Elements, in the order of each person, as the count gets them: some are empty steps.

    Args:
      bounding: of a count after elements.
      person: gives that of an element's value.
    """
    seen: dict[str, Seen] = {}
    for (key, payload), micros in elements:
        of_person = seen.setdefault(person(payload), Seen())
        kept = bounding._bound.take(of_person, [key], micros)
        yield (key, payload if kept else Excess(payload)), micros
