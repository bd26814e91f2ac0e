"""What `TickAggregate` releases of each key: `dp.metrics.Count()`, `dp.metrics.Mean(...)` etc."""

from beam_dpcount.statistics.metrics.base import Metric
from beam_dpcount.statistics.metrics.counts import Count
from beam_dpcount.statistics.metrics.means import Mean, Variance
from beam_dpcount.statistics.metrics.people import DistinctUsers
from beam_dpcount.statistics.metrics.quantiles import Quantiles
from beam_dpcount.statistics.metrics.sums import Sum

__all__ = ["Count", "DistinctUsers", "Mean", "Metric", "Quantiles", "Sum", "Variance"]
