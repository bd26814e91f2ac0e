"""What a `TickCount` counts of each key: one file each, and one entry in `__all__`."""

from beam_dpcount.statistics.metrics.base import Metric
from beam_dpcount.statistics.metrics.counts import Count
from beam_dpcount.statistics.metrics.items import Items
from beam_dpcount.statistics.metrics.means import Mean, Variance
from beam_dpcount.statistics.metrics.people import People
from beam_dpcount.statistics.metrics.quantiles import Quantiles
from beam_dpcount.statistics.metrics.rates import Rate
from beam_dpcount.statistics.metrics.sums import Sum

__all__ = [
    "Count",
    "Items",
    "Mean",
    "Metric",
    "People",
    "Quantiles",
    "Rate",
    "Sum",
    "Variance",
]

# Every door has these, under their names in small letters.
ALL: tuple[type[Metric], ...] = tuple(globals()[name] for name in __all__ if name != "Metric")
