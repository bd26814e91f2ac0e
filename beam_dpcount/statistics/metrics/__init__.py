"""What `TickAggregate` releases of each key: `dp.metrics.Count()`, `dp.metrics.Mean(...)` etc."""

from beam_dpcount.statistics.metrics.base import Metric
from beam_dpcount.statistics.metrics.counts import Count
from beam_dpcount.statistics.metrics.means import Mean
from beam_dpcount.statistics.metrics.sums import Sum

__all__ = ["Count", "Mean", "Metric", "Sum"]
