"""Functions of a growing stream as running sums of what each element adds: pure algorithms."""

from beam_dpcount.statistics.base import Statistic

__all__ = ["Statistic"]
