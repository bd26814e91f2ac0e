"""Histogram: private running counts of the items of a small public domain, after every element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from beam_dpcount.checks import check_flag
from beam_dpcount.statistics.base import Statistic
from beam_dpcount.statistics.items import Items, OneItem
from beam_dpcount.transforms.elements import NamedCount


@dataclass(eq=False, repr=False)
class Histogram(NamedCount):
    """Private running counts of every item of a public domain, released after every element.

    PCollection[KV[str, item or items]] -> PCollection[VectorRelease], one release per element,
    its value aligned to the domain; with on_reject="collect", -> (releases, rejected). Order as
    for PrefixCount.

    An element's value is an item (a str of the domain) or an iterable of items. Duplicates in one
    element count once; of more than `max_items` distinct ones, the first in the order of the
    domain are kept. Unknown items count nothing. With removals a value may also be a mapping from
    items to 1 or -1: {"queued": -1, "running": 1} counts one down and the other up.

    Args:
      domain: the items, a sequence of distinct str; public, so not taken from the private data. It
        is the third argument, after the horizon, which may be left out: Histogram(budget,
        domain=items).
      max_items: b, the most distinct items that one element counts. The noise grows with its
        square root (Gaussian), or with b (Laplace).
      removals: whether items may be counted down.
      fit_total: whether to fit each release to the number of elements, which is public: what counts
        no item of the domain (refused, unknown, empty, beyond its person's bound) is counted too,
        in a coordinate of its own, and what the d + 1 noisy counts lack of the step, or exceed it
        by, is taken from all of them alike. The variance is 1 - 1/(d + 1) of what it was, d the
        size of the domain, and `stddev` says so; errors of two items get a correlation of -1/d. It
        gains nothing for d = 1, where that coordinate costs as much noise, and doubles the variance
        under a pure budget. The coordinate is not in
        `value`, but it is what the values leave of the step: release.step - sum(release.value),
        with the same stddev. Only for one item an element, without removals, under replace_one:
        under add_remove whether an element counts is protected, and so is the total.
      relation: "replace_one" (default): an element's items are any others. "add_remove": they
        count, or the element is empty; it takes less noise.
      on_reject: as for PrefixCount, for elements whose value is not an item, or names an unknown
        one, or too many. The rest of an element counts in any case.
      budget, horizon, mechanism, every, value, element_id, path, entropy, allow_runner, users: as
        for PrefixCount, but without Sparse; `value` takes the items out of an element's value.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for streams that differ in the items of any one element. Public, so not protected: the keys,
      the domain, and the number, order and timestamps of the elements. One element changes at
      most 2b coordinates by 1 (replace_one; with removals, b by 2) or b by 1 (add_remove), as it
      counts at most b distinct items whatever it names, each in a coordinate with noise of its
      own: with c and s the largest L2 and L1 norms of the encoder's columns, Delta_2 = sqrt(2b) c,
      2 sqrt(b) c or sqrt(b) c, and Delta_1 = 2b s, 2b s or b s. [FHU22], Corollary 2, has only
      add_remove of whole steps; see `ItemsChange`. With fit_total each element is in exactly one of
      d + 1 coordinates, so that replacing one still changes two by 1; how many elements are in none
      of the domain is released, as private as the rest. Noise and retries as for PrefixCount.

    Attributes:
      counter: as for PrefixCount, of vectors.
      domain, labels: the items, as a tuple.

    Raises:
      ValueError, TypeError: as for PrefixCount, and at construction where a key's state
        (`counter.state_size` numbers an item) would exceed 10^6 numbers, or where fit_total meets
        max_items, removals or add_remove.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("/home", "login"), ("/home", "logout")])
      ...     releases = events | dp.Histogram(dp.ZCDP(0.5), 1000, ["login", "logout"])
      ...     _ = releases | beam.Map(lambda release: print(release.step, len(release.value)))
      1 2
      2 2
    """

    horizon: int | None = None
    domain: Sequence[str] = ()  # is refused: it follows a default, and has none
    _: KW_ONLY
    max_items: int = 1
    removals: bool = False
    fit_total: bool = False

    def _build(self) -> Statistic:
        check_flag("fit_total", self.fit_total)
        return self._of(OneItem if self.fit_total else Items)
