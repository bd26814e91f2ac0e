"""Counting few ones in long streams, by segments whose ends are chosen privately."""

from __future__ import annotations

from dataclasses import dataclass

from beam_dpcount.checks import check_whole
from beam_dpcount.mechanisms.base import MAX_HORIZON, Mechanism, check_share, is_mechanism_class
from beam_dpcount.mechanisms.binary import BinaryTree


@dataclass(frozen=True)
class Sparse:
    """Counts only when enough ones have come: the error grows with the ones, not the steps.

    Ones are gathered until a noisy comparison finds about `segment` of them. Their count then
    goes, as one item, to a counter of horizon `segments`, whose release stands until the next
    segment ends; the last one stands for good. Not linear: a release is late by up to a segment,
    and has no exact variance (`error_bound`).

    Args:
      segment: about how many ones make a segment, K; from 1.
      segments: how many segments are counted, S; from 1. About 2 n / K for n ones.
      counter: the class of the mechanism that counts segments; default BinaryTree.
      share: of the budget for finding the ends of segments, between 0 and 1, both excluded.

    Guarantee: e1 = share * epsilon pays for the comparisons (threshold K + discrete Laplace of
      scale 1/e1, new in each segment, against the gathered count + discrete Laplace of scale
      1/e1, new at each step), the rest for the counter of segments. Given the ends of segments an
      item lies in one of them, so it is charged for one threshold and as one item of the counter.
      The threshold's noise stays in state for its segment: replays of other data are not covered.

    Source: [DNRR15, Section 4], after the sparse vector technique, whose scales 2/e1 and 4/e1
      are not needed here, as one event moves all later counts of its segment the same way
      (docs/proofs/unbounded_and_sparse.md).
    """

    segment: int
    segments: int
    counter: type[Mechanism] = BinaryTree
    share: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "segment", check_whole("segment", self.segment))
        segments = check_whole("segments", self.segments, MAX_HORIZON, "segments")
        object.__setattr__(self, "segments", segments)
        if not is_mechanism_class(self.counter):
            raise TypeError(f"counter must be a class such as BinaryTree, got {self.counter!r}")
        if not self.counter(self.segments).workload.is_prefix_sums:
            raise ValueError(f"counter must release prefix sums, which {self.counter!r} does not")
        check_share(self.share)

    @property
    def draws_early(self) -> bool:
        """Whether the counter of segments draws early."""
        return self.counter(self.segments).draws_early

    @property
    def name(self) -> str:
        return f"Sparse({self.counter.__name__})"
