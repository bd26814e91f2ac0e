"""StatisticCount: any statistic of a growing stream, released privately; base of the named ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beam_dpcount.statistics.base import Statistic
from beam_dpcount.transforms.elements import EachElement


@dataclass(eq=False, repr=False)
class StatisticCount(EachElement):
    """A private statistic of each key's stream, released after every element or every few.

    PCollection[KV[str, anything]] -> PCollection[Release], or of VectorRelease where the statistic
    has several coordinates; with on_reject="collect", -> (releases, rejected). For statistics of
    your own; SubstringCount, TriangleCount and others have a transform each. Order as for
    PrefixCount.

    Args:
      statistic: what is counted, such as `statistics.Triangles(100, max_degree=5)`.
      relation: the neighbouring relation, as `statistic.change` takes it.
      budget, horizon, every, on_reject, mechanism, value, element_id, path, entropy, allow_runner,
        users: as for PrefixCount, without Unbounded and Sparse.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for streams that differ as `statistic.change(relation)` says. It rests on that method, which
      for a statistic of your own is your word: test it by brute force. Public, so not protected:
      the keys, the statistic's parameters, and the number, order and timestamps of the elements.
      Noise and retries as for PrefixCount.

    Attributes:
      counter: as for PrefixCount.
      domain: what the coordinates of a release count, as a tuple of texts; None for one number.

    Raises:
      ValueError, TypeError: as for PrefixCount.

    Example:
      >>> import beam_dpcount as dp
      >>> from beam_dpcount.statistics import Triangles
      >>> triangles = Triangles(100, max_degree=5)
      >>> count = dp.StatisticCount(dp.ZCDP(0.5), 1000, triangles, relation="edge")
      >>> count.counter.mechanism.name
      'ProfiledBLT'
    """

    statistic: Statistic

    def _made(self) -> Statistic:
        given: Any = self.statistic
        if not isinstance(given, Statistic):
            example = "give e.g. statistics.Triangles(100, max_degree=5)"
            raise TypeError(f"statistic must be a Statistic, got {given!r}: {example}")
        return given

    @property
    def domain(self) -> tuple[str, ...] | None:
        """What the coordinates of a release count; None for one number."""
        return self.statistic.labels
