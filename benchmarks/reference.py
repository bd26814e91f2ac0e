"""The uninterrupted run of a streaming count: its steps one after the other, in memory.

No engine, and no bytes: the state is never packed, written or read. What a codec, a cell, a
checkpoint or a restart does to it therefore shows in a comparison; see judge.py. The noise is the
DoFn's own, and needs its secret in this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from apache_beam.transforms.window import GlobalWindow

from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.states import PAIR, packer
from beam_dpcount.dofns.ticks import CountEachTick
from beam_dpcount.noise.replay import NO_ID


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
        identity = None if intake.element_id is None else intake.element_id(payload)
        digest = draws.follow(digest, identity, pack(0, codes))
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
    """
    plan, draws, window = counting._plan, counting._draws, GlobalWindow()
    counter, clock = plan.counter, plan.clock
    for key, xs in sums.items():
        state, digest = counter.init(), draws.begin(key, window)
        for step, x in enumerate(xs, start=1):
            capped = min(max(x, -plan.cap), plan.cap)
            digest = draws.follow(digest, NO_ID, PAIR.pack(step, capped))
            state, value = counter.step_lattice(state, capped, draws.noise(key, window, digest))
            micros = clock.end(clock.start, step)
            yield Release(key, step, micros, value, counter.stddev_at(state))
