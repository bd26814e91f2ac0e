"""Reads elements: the public key and id, and the codes of what a statistic counts of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.dofns.releases import Rejected, Release, VectorRelease
from beam_dpcount.dofns.rows import TO_PAIRS, RowElementError, is_row
from beam_dpcount.errors import Error
from beam_dpcount.noise.entropy import Draws, Entropy
from beam_dpcount.reading import UNREADABLE, Function, call, class_attribute, class_name, read
from beam_dpcount.statistics.base import Codes, Statistic
from beam_dpcount.statistics.numbers import Numbers

_KNOWN = 256  # so many are remembered
_READS = ("__len__", "__iter__", "__getitem__", "__getattribute__")
NOT_PAIRS = "elements must be (key, value) pairs with a str key, but {found}"


class RejectedElementError(Error, ValueError):
    """An element was refused under on_reject="raise"; its presence in the data is thereby shown."""


@dataclass(frozen=True)
class Excess:
    """The payload of an element that takes its step, but is not one of its person's that count."""

    payload: Any


@dataclass(frozen=True)
class Lost:
    """The payload of an element that no coder carries: it takes its step, too, and counts nothing.

    Args:
      identity: the element's public id, read before; None where there are no ids.
    """

    identity: Any = None


class Intake:
    """Reads elements for a counter of a statistic, of as many coordinates; else as PrefixCount."""

    def __init__(
        self,
        counter: LatticeCounter,
        statistic: Statistic,
        on_reject: str = "drop",
        value: Function | None = None,
        element_id: Function | None = None,
        every: int = 1,
        counted: Any = None,
    ) -> None:
        self.counter, self.statistic, self.on_reject = counter, statistic, on_reject
        self.collects = on_reject == "collect"
        self._value, self.element_id, self.every = value, element_id, every
        self.is_plain = element_id is None and not self.collects
        # Whether an element is a number, of which only what is released is kept or given out.
        self.is_lean = self.is_plain and every == 1 and type(statistic) is Numbers
        self._counted = counted  # what else says which elements count, for replayable noise
        self._remembers = type(statistic) is Numbers
        # Of some whole numbers; none where it is the user who makes a number of an element.
        self.recalled: dict[int, Codes] = {}
        self._known: dict[int, Codes] = {} if value is not None else self.recalled
        self._is_scalar = statistic.labels is None
        self._shown = None if self._is_scalar else len(statistic.labels or ())
        self.release_type: Any = Release if self._is_scalar else VectorRelease

    def __getstate__(self) -> dict[str, Any]:
        # Values of elements are in no pickle.
        recalled: dict[int, Codes] = {}
        known = {} if self._value is not None else recalled
        return {**self.__dict__, "_known": known, "recalled": recalled}

    def codes(self, key: str, payload: object, micros: int) -> tuple[Codes, Rejected | None]:
        """The codes of an element, and the refusal of what does not count of it, if any."""
        if type(payload) is Excess or type(payload) is Lost:
            return self.statistic.empty, None
        content = payload if self._value is None else read(self._value, payload)
        if type(content) is int:  # most are few ones
            known = self._known.get(content)
            if known is not None:
                return known, None
        codes, reason = self._read(content)
        if self._remembers and type(content) is int and len(self._known) < _KNOWN:
            self._known[content] = codes  # no whole number is refused
        if reason is None or self.on_reject == "drop":
            return codes, None
        return codes, self.refuse(key, payload, micros, reason)

    def _read(self, content: Any) -> tuple[Codes, str | None]:
        """The codes of what is counted, and why the content does not count as it is."""
        result = UNREADABLE if content is UNREADABLE else read(self.statistic.read, content)
        if result is UNREADABLE:
            return self.statistic.empty, self.statistic.unreadable
        codes, reason = result
        return codes, reason

    def number(self, key: str, payload: object, micros: int) -> int:
        """The one code of an element of which a number counts, refused or not."""
        (x,), _ = self.codes(key, payload, micros)
        return x

    def examine(self, element: Any) -> tuple[str | None, Codes, Any]:
        """Why an element does not count as it is, its codes and its id.

        Each function of the user is called once; if it raises an error, that is a FunctionError.
        """
        if not has_str_key(element):
            return self.refuse_key(element, 0).reason, self.statistic.empty, None
        _, payload = element
        by_id = self.element_id
        identity = None if by_id is None else call("element_id", by_id, payload)
        content = payload if self._value is None else call("value", self._value, payload)
        problem = read(self.statistic.problem, content)
        if problem is UNREADABLE:
            problem = self.statistic.unreadable
        return problem, self._read(content)[0], identity

    def identity(self, payload: Any) -> Any:
        """The public id of an element; None where there are no ids."""
        if self.element_id is None:
            return None
        if type(payload) is Lost:
            return payload.identity
        return self.element_id(_given(payload))

    def refuse_key(self, element: Any, micros: int) -> Rejected:
        """Refuse an element without a str key: keys are public, so it cannot pass silently."""
        if is_row(element):
            if not self.collects:
                raise RowElementError(TO_PAIRS)
            reason = "the element is a row, not a (key, value) pair"
        elif is_pair(element):
            reason = f"the key is not a str but {class_name(type(element[0]))}"
        else:
            reason = f"the element is not a (key, value) pair but {class_name(type(element))}"
        if not self.collects:
            raise TypeError(NOT_PAIRS.format(found=reason))
        return Rejected("", micros, reason, _shown(element), None)

    def refuse(self, key: str, payload: object, micros: int, reason: str) -> Rejected:
        """The record of a refusal, or the error that on_reject="raise" asked for."""
        identity = self.identity(payload)
        if self.on_reject == "raise":
            where = "" if identity is None else f" (element {identity})"
            remedy = 'fix the input, or count such elements as 0 with on_reject="drop"'
            raise RejectedElementError(f"{reason}{where}: {remedy}") from None
        shown = None if identity is None else str(identity)
        return Rejected(key, micros, reason, _shown(_given(payload)), shown)

    @property
    def parameters(self) -> str:
        """All that releases depend on, for replayable noise."""
        whole = self.statistic.noise_parameters(self.counter.fingerprint)
        return whole if self._counted is None else ascii((whole, self._counted))

    def draws(self, entropy: Entropy) -> Draws:
        """The noise of the counter."""
        return entropy.draws(self.counter.law, self.counter.dimension, self.parameters)

    def shown(self, value: Any) -> Any:
        """A value as releases have it."""
        return value if self._is_scalar else np.asarray(value)[: self._shown].tolist()


def _given(payload: Any) -> Any:
    return payload.payload if type(payload) is Excess else payload


def _shown(value: object) -> str:
    """The repr of a value; its type's name where none can be made, or UTF-8 cannot hold it."""
    try:
        text = repr(value)
        text.encode()
    except Exception:  # whatever its own code raises, and whole numbers of 4301 digits do
        return f"<{class_name(type(value))}>"
    return text


def has_str_key(element: Any) -> bool:
    """Whether an element is a pair with a text key; a row is not, whatever its first field."""
    return is_pair(element) and issubclass(type(element[0]), str)


def is_pair(element: Any) -> bool:
    """Whether an element is a tuple of two: one that reads as tuples do, whatever its class."""
    kind = type(element)
    if kind is not tuple:
        if not issubclass(kind, tuple) or is_row(element):
            return False
        if read(_reads_as_tuples, kind) is not True:
            return False
    return len(element) == 2


def _reads_as_tuples(kind: type) -> bool:
    return all(class_attribute(kind, name) is class_attribute(tuple, name) for name in _READS)


def check_unique(identities: Sequence[Any]) -> None:
    """Raise ValueError for ids that are not.

    What a source delivers twice would count twice, and more than the noise was made for. Under
    replayable noise replays in another order would show values, too.
    """
    try:
        found = [*Counter(identities).items()]
    except TypeError:  # lists sort, but have no hash
        found = [(identity, len([*same])) for identity, same in groupby(sorted(identities))]
    for identity, times in found:
        if times > 1:
            raise ValueError(
                f"element_id gave {identity!r} for {times} elements of a key, but ids must be "
                "unique: leave out what the source delivered again, or add what tells the elements "
                "apart, such as the row"
            )
