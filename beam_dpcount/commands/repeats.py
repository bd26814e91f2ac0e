"""Whether a run released what the run did that it repeats: digests of releases, for an account.

A repeat costs nothing, so it must be one. Inputs that are equal before and after a run may have
been others meanwhile, and a time zone or a library may have changed: what was released is compared.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from beam_dpcount.noise.replay import ReplayableEntropy

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

WHOLE = 0  # in place of a tick: all that was released
_MOST = 1024  # ticks whose digests an account keeps


def digests(task: Task) -> dict[int, str]:
    """Keyed digests of what was released up to some ticks, the last one among them."""
    ticks = task.ticks_released
    if ticks is None:
        return {WHOLE: _digest(task, WHOLE)}
    apart = -(-ticks // _MOST)
    wanted = {*range(apart, ticks + 1, apart), ticks}
    chain = {step: state for step, state in _chain(task.output.records(), ticks) if step in wanted}
    return {step: _keyed(task, state) for step, state in chain.items()}


def agrees(task: Task, earlier: Mapping[int, str]) -> bool:
    """Whether a run released the same as an earlier one, whose digests these are.

    One of them may have released further ticks. What nobody can compare does not agree.
    """
    if not earlier:
        return False
    ticks = task.ticks_released
    common = WHOLE if ticks is None else min(ticks, max(earlier))
    return common in earlier and earlier[common] == _digest(task, common)


def _digest(task: Task, ticks: int) -> str:
    """The digest of what was released up to a tick, or of the whole."""
    state = b""
    for _, state in _chain(task.output.records(), ticks):  # noqa: B007
        pass
    return _keyed(task, state)


def _chain(records: Iterable[tuple[Any, ...]], ticks: int) -> Iterator[tuple[int, bytes]]:
    """After each tick, or each step with releases, a digest of all releases up to it."""
    releases: dict[int, list[str]] = defaultdict(list)
    for key, step, _, *values in records:
        releases[step].append(repr((key, values)))
    state = b""
    for step in range(1, ticks + 1) if ticks else sorted(releases):
        lines = "\n".join((str(step), *sorted(releases.get(step, ()))))
        state = hashlib.blake2b(state + lines.encode("utf-8", "surrogatepass")).digest()
        yield step, state


def _keyed(task: Task, state: bytes) -> str:
    """Without the secret it says nothing of what was released."""
    entropy = task.entropy
    if not isinstance(entropy, ReplayableEntropy):
        raise TypeError("only replayable noise can be drawn again")
    return entropy.mark(f"released {state.hex()}")[:32]
