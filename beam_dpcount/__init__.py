"""Differentially private counts of live event streams, as Apache Beam transforms.

One folder a stage, and imports run one way, down this list; docs/architecture.md is the map:

  rows/         counts of rows with a schema: Beam YAML, other languages
  commands/     the command lines: files, figures, reports
  transforms/   the PTransforms, thin; what they check of their input
  local/        another privacy model: clients that trust no one
  dofns/        what runs in workers: releases, bytes of state, DoFns
  statistics/   functions of a growing stream, as what each element adds
  counters/     what one event changes; calibrated counters, their errors, choose()
  mechanisms/   continual-counting mechanisms, one a file, and ALL of them
  budget/       budgets, conversions, one ledger for a whole pipeline
  noise/        exact integer noise laws; where draws come from; replays

`errors` has what users catch, and `post` what follows on releases at no cost; docs/names.md says
which names are where. From `statistics` down nothing knows of Beam. A name is imported when it is
first used, so that `import beam_dpcount` loads no Beam.
"""

from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any

from beam_dpcount.version import __version__ as __version__

if TYPE_CHECKING:
    from beam_dpcount import errors, local, mechanisms, post
    from beam_dpcount.budget.budgets import ZCDP, ApproxDP, PureDP
    from beam_dpcount.budget.ledger import Ledger
    from beam_dpcount.counters.change import Change
    from beam_dpcount.counters.choose import choose
    from beam_dpcount.counters.clock import Clock
    from beam_dpcount.counters.counter import Counter, calibrate
    from beam_dpcount.counters.errors import half_width, largest_half_width
    from beam_dpcount.counters.hierarchy import Hierarchy
    from beam_dpcount.counters.largest import largest_error
    from beam_dpcount.counters.people import Users
    from beam_dpcount.counters.selection import SelectKeys
    from beam_dpcount.counters.total import TOTAL
    from beam_dpcount.dofns.releases import (
        NodeRelease,
        Rejected,
        Release,
        TickRelease,
        TopRelease,
        VectorRelease,
    )
    from beam_dpcount.errors import Error
    from beam_dpcount.noise.replay import ReplayableEntropy
    from beam_dpcount.statistics import metrics
    from beam_dpcount.statistics.metrics.counts import Count
    from beam_dpcount.statistics.metrics.items import Items
    from beam_dpcount.statistics.metrics.means import Mean, Variance
    from beam_dpcount.statistics.metrics.people import People
    from beam_dpcount.statistics.metrics.quantiles import Quantiles
    from beam_dpcount.statistics.metrics.rates import Rate
    from beam_dpcount.statistics.metrics.sums import Sum
    from beam_dpcount.transforms.alarms import Alarm
    from beam_dpcount.transforms.bounds import suggest_bounds
    from beam_dpcount.transforms.checking import check
    from beam_dpcount.transforms.counts import PrefixCount
    from beam_dpcount.transforms.elements import StatisticCount
    from beam_dpcount.transforms.graphs import (
        CutGraph,
        DegreeHistogram,
        EdgeCount,
        HighDegreeCount,
        KStarCount,
        SpanningForestCost,
        TriangleCount,
    )
    from beam_dpcount.transforms.histograms import Histogram
    from beam_dpcount.transforms.sentence import TickCount
    from beam_dpcount.transforms.sequences import EpisodeCount, SubstringCount
    from beam_dpcount.transforms.users import BoundUsers

# fmt: off
__all__ = [
    "TOTAL", "ZCDP", "Alarm", "ApproxDP", "BoundUsers", "Change", "Clock", "Count", "Counter",
    "CutGraph", "DegreeHistogram", "EdgeCount", "EpisodeCount", "Error", "Hierarchy",
    "HighDegreeCount", "Histogram", "Items", "KStarCount", "Ledger", "Mean", "NodeRelease",
    "People", "PrefixCount", "PureDP",
    "Quantiles", "Rate", "Rejected", "Release", "ReplayableEntropy", "SelectKeys",
    "SpanningForestCost", "StatisticCount", "SubstringCount", "Sum", "TickCount", "TickRelease",
    "TopRelease", "TriangleCount", "Users", "Variance", "VectorRelease", "calibrate", "check",
    "choose", "errors", "half_width", "largest_error", "largest_half_width", "local",
    "mechanisms", "metrics", "post", "suggest_bounds",
]
# fmt: on

# Where each name lives; the imports above say the same to editors and type checkers.
_NAMES = {
    "budget.budgets": "ApproxDP PureDP ZCDP",
    "budget.ledger": "Ledger",
    "errors": "Error",
    "noise.replay": "ReplayableEntropy",
    "counters.change": "Change",
    "counters.counter": "Counter calibrate",
    "counters.choose": "choose",
    "counters.clock": "Clock",
    "counters.errors": "half_width largest_half_width",
    "counters.hierarchy": "Hierarchy",
    "counters.largest": "largest_error",
    "counters.people": "Users",
    "counters.selection": "SelectKeys",
    "counters.total": "TOTAL",
    "dofns.releases": "NodeRelease Rejected Release TickRelease TopRelease VectorRelease",
    "statistics.metrics.counts": "Count",
    "statistics.metrics.items": "Items",
    "statistics.metrics.means": "Mean Variance",
    "statistics.metrics.people": "People",
    "statistics.metrics.quantiles": "Quantiles",
    "statistics.metrics.rates": "Rate",
    "statistics.metrics.sums": "Sum",
    "transforms.alarms": "Alarm",
    "transforms.bounds": "suggest_bounds",
    "transforms.checking": "check",
    "transforms.counts": "PrefixCount",
    "transforms.elements": "StatisticCount",
    "transforms.graphs": (
        "CutGraph DegreeHistogram EdgeCount HighDegreeCount KStarCount SpanningForestCost "
        "TriangleCount"
    ),
    "transforms.histograms": "Histogram",
    "transforms.sequences": "EpisodeCount SubstringCount",
    "transforms.sentence": "TickCount",
    "transforms.users": "BoundUsers",
}
_MODULES = {
    **{name: f"beam_dpcount.{name}" for name in ("errors", "local", "mechanisms", "post")},
    "metrics": "beam_dpcount.statistics.metrics",
}
_IMPORTING = RLock()  # Beam's own modules import each other in circles
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _IMPORTING:
        if name in _MODULES:
            return import_module(_MODULES[name])
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
