"""Histogram: private running counts of the items of a small public domain, after every element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.ledger import Share
from beam_dpcount.checks import check_whole
from beam_dpcount.counters.change import ItemsChange
from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.dofns.elements import Intake, pack_codes
from beam_dpcount.dofns.releases import Rejected, VectorRelease
from beam_dpcount.mechanisms import Mechanism, Sparse, Unbounded
from beam_dpcount.mechanisms.base import MAX_HORIZON, IntArray
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.statistics.items import (
    as_vector,
    as_vectors,
    check_domain,
    check_state,
    places,
    read_items,
)
from beam_dpcount.transforms.elements import EachElement


class ItemsIntake(Intake):
    """Reads elements that name items: `number` gives their codes, padded with 0.

    Args:
      counter: of as many coordinates as the domain has items.
      on_reject, value, element_id: as for Intake.
      domain, most, removals: as for `read_items`.
    """

    release_type = VectorRelease

    def __init__(
        self,
        counter: LatticeCounter,
        on_reject: str,
        value: Callable[[Any], Any] | None,
        element_id: Callable[[Any], Any] | None,
        domain: Sequence[str],
        most: int,
        removals: bool,
    ) -> None:
        super().__init__(counter, on_reject, value, element_id)
        self._places, self._most, self._removals = places(domain), most, removals
        self._domain = tuple(domain)
        self._dimension = len(domain)
        self.width = most

    def number(self, key: str, payload: Any, micros: int) -> tuple[Any, Rejected | None]:
        """The codes of what counts, and the refusal of what does not; the step is always taken."""
        codes: tuple[int, ...]
        reason: str | None
        try:
            items = payload if self._value is None else self._value(payload)
            codes, reason = read_items(items, self._places, self._most, self._removals)
        except (ValueError, TypeError, ArithmeticError, LookupError):
            codes, reason = (), "the value could not be taken as items"
        codes = codes + (0,) * (self._most - len(codes))
        if reason is None or self.on_reject == "drop":
            return codes, None
        return codes, self.refuse(key, payload, micros, reason)

    def problem(self, content: Any) -> str | None:
        return read_items(content, self._places, self._most, self._removals)[1]

    def packer(self) -> Callable[[int, Any], bytes]:
        return pack_codes(self.width)

    def all_counted(self, memory: Any, numbers: IntArray) -> tuple[Any, IntArray]:
        return None, as_vectors(numbers, self._dimension)

    def counted(self, memory: Any, x: Any) -> tuple[Any, Any]:
        return None, as_vector(x, self._dimension)

    @property
    def parameters(self) -> str:
        return ascii((self._domain, self._most, self._removals, self.counter.fingerprint))

    def shown(self, value: Any) -> list[float]:
        return np.asarray(value).tolist()


class Histogram(EachElement):
    """Private running counts of every item of a public domain, released after every element.

    PCollection[KV[str, item or items]] -> PCollection[VectorRelease], one release per element,
    its value aligned to the domain; with on_reject="collect", -> (releases, rejected). Order as
    for PrefixCount: by event time on bounded input, of arrival on unbounded input.

    An element's value is an item (a str of the domain) or an iterable of items. Duplicates in one
    element count once; of more than `max_items` distinct ones, the first in the order of the
    domain are kept. Unknown items count nothing. With removals a value may also be a mapping from
    items to 1 or -1: {"queued": -1, "running": 1} counts one down and the other up.

    Args:
      budget: PureDP, ApproxDP, ZCDP or a share of a `Ledger`: what all releases of one key may
        cost together.
      horizon: the most elements that any key will have, from 1 to 2^48; None for Unbounded.
      domain: the items, a sequence of distinct str; public, so not taken from the private data.
      max_items: b, the most distinct items that one element counts. The noise grows with its
        square root (Gaussian), or with b (Laplace).
      removals: whether items may be counted down.
      mechanism: as for PrefixCount, but not Sparse.
      relation: "replace_one" (default): an element's items are any others. "add_remove": they
        count, or the element is empty; it takes less noise.
      on_reject: what happens to elements of which something does not count: their value is no
        item, names an unknown item, or too many. What does count of them is counted in any case,
        and their step is always taken. "drop" (default): nothing else. "collect": they go to a
        second output too, of Rejected, with elements beyond the horizon and elements with a bad
        key; it is private data. "raise": an error stops the pipeline; that it stops is outside
        the guarantee. Bad keys are an error unless collected.
      value, element_id, path, entropy: as for PrefixCount; `value` takes the items out of an
        element's value.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for streams that differ in the items of any one element. Public, so not protected: the keys,
      the domain, and the number, order and timestamps of the elements. One element changes at
      most 2b coordinates by 1 (replace_one; with removals, b by 2) or b by 1 (add_remove), as it
      counts at most b distinct items whatever it names, each in a coordinate with noise of its
      own: with c and s the largest L2 and L1 norms of the encoder's columns, Delta_2 = sqrt(2b) c,
      2 sqrt(b) c or sqrt(b) c, and Delta_1 = 2b s, 2b s or b s. [FHU22], Corollary 2, has only
      add_remove of whole steps; see `ItemsChange`. Noise and retries as for PrefixCount.

    Attributes:
      counter: the calibrated vector counter; the one in use, once the transform is applied.
      domain: the items, as a tuple.

    Raises:
      ValueError, TypeError: at construction, for arguments out of range, and where a key's state
        (`counter.state_size` numbers an item) would exceed 10^6 numbers; when applied, as for
        PrefixCount.
    """

    def __init__(
        self,
        budget: Budget | Share,
        horizon: int | None,
        domain: Sequence[str],
        *,
        max_items: int = 1,
        removals: bool = False,
        mechanism: Mechanism | type[Mechanism] | str | Unbounded | None = None,
        relation: str = "replace_one",
        on_reject: str = "drop",
        value: Callable[[Any], Any] | None = None,
        element_id: Callable[[Any], Any] | None = None,
        path: str = "auto",
        entropy: Entropy | None = None,
        allow_runner: bool = False,
    ) -> None:
        super().__init__(budget, on_reject, value, element_id, path, entropy, allow_runner)
        if not isinstance(removals, bool):
            raise TypeError(f"removals must be True or False, got {removals!r}")
        if isinstance(mechanism, Sparse):
            raise ValueError(
                "Sparse counts single numbers, not histograms: give a horizon, or Unbounded"
            )
        self.domain = check_domain(domain)
        dimension = len(self.domain)
        most = check_whole("max_items", max_items, dimension)
        change = ItemsChange(-1 if removals else 0, 1, relation, max_items=most)
        self._items = self.domain, most, removals
        self._calibrate(mechanism, horizon, change, dimension)
        for counter in self._counters.values():
            check_state(
                _state_size(counter),
                dimension,
                "use TickHistogram, or give a smaller domain (group the rare items under one name)",
            )

    def _intake(self) -> Intake:
        return ItemsIntake(self.counter, *self._element, *self._items)

    def _describe(self) -> dict[str, str]:
        removals = ", some counted down" if self._items[2] else ""
        items = f"{len(self.domain)}, at most {self._items[1]} an element{removals}"
        return {**super()._describe(), "items": items}


def _state_size(counter: Any) -> int:
    """The most numbers kept per key and coordinate."""
    size = counter.state_size
    if isinstance(size, int):
        return size
    return int(size((counter.horizon or MAX_HORIZON) - 1))  # in the last epoch
