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

From `statistics` down nothing knows of Beam. A name is imported when it is first used, so that
`import beam_dpcount` loads no Beam.
"""

from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any

from beam_dpcount.version import __version__ as __version__

if TYPE_CHECKING:
    from beam_dpcount import mechanisms
    from beam_dpcount.budget.budgets import ZCDP, ApproxDP, PureDP, WeakBudgetWarning
    from beam_dpcount.budget.charges import OverspentError
    from beam_dpcount.budget.ledger import Ledger
    from beam_dpcount.budget.shares import Share
    from beam_dpcount.checks import Error
    from beam_dpcount.counters.change import Change
    from beam_dpcount.counters.choose import choose
    from beam_dpcount.counters.clock import Clock
    from beam_dpcount.counters.counter import Counter, calibrate
    from beam_dpcount.counters.errors import half_width, largest_error, largest_half_width
    from beam_dpcount.counters.lattice import NotANumberError
    from beam_dpcount.counters.people import Users
    from beam_dpcount.counters.selection import SelectKeys
    from beam_dpcount.counters.sparse import SparseCounter, sparse_for
    from beam_dpcount.counters.total import TOTAL
    from beam_dpcount.counters.unbounded import UnboundedCounter
    from beam_dpcount.dofns.releases import (
        Rejected,
        Release,
        TickRelease,
        TopRelease,
        VectorRelease,
    )
    from beam_dpcount.local.transforms import LocalConvexRisk, LocalMedian
    from beam_dpcount.mechanisms.base import HorizonError
    from beam_dpcount.noise.entropy import SystemEntropy
    from beam_dpcount.noise.replay import ReplayableEntropy, SecretError
    from beam_dpcount.statistics import metrics
    from beam_dpcount.statistics.metrics.counts import Count
    from beam_dpcount.statistics.metrics.items import Items
    from beam_dpcount.statistics.metrics.means import Mean, Variance
    from beam_dpcount.statistics.metrics.people import People
    from beam_dpcount.statistics.metrics.quantiles import Quantiles
    from beam_dpcount.statistics.metrics.rates import Rate
    from beam_dpcount.statistics.metrics.sums import Sum
    from beam_dpcount.transforms.aggregates import TickAggregate
    from beam_dpcount.transforms.bounds import suggest_bounds
    from beam_dpcount.transforms.checking import Checked, CheckError, check
    from beam_dpcount.transforms.counts import PrefixCount
    from beam_dpcount.transforms.distinct import DistinctUsers
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
    from beam_dpcount.transforms.last import LastPerTick
    from beam_dpcount.transforms.postprocess import (
        Isotonic,
        Monotone,
        NonNegative,
        Rounded,
        RunningAverage,
        ShrinkAcrossKeys,
        SlidingSum,
        TopK,
        TopKPerTick,
    )
    from beam_dpcount.transforms.runners import RunnerError, RunnerWarning
    from beam_dpcount.transforms.sequences import EpisodeCount, SubstringCount
    from beam_dpcount.transforms.sliding import SlidingCount
    from beam_dpcount.transforms.tick_histograms import TickHistogram
    from beam_dpcount.transforms.ticks import TickCount
    from beam_dpcount.transforms.users import BoundUsers

# fmt: off
__all__ = [
    "TOTAL", "ZCDP", "ApproxDP", "BoundUsers", "Change", "CheckError", "Checked", "Clock", "Count",
    "Counter", "CutGraph", "DegreeHistogram", "DistinctUsers", "EdgeCount", "EpisodeCount", "Error",
    "HighDegreeCount", "Histogram", "HorizonError", "Isotonic", "Items", "KStarCount",
    "LastPerTick", "Ledger", "LocalConvexRisk", "LocalMedian", "Mean", "Monotone", "NonNegative",
    "NotANumberError", "OverspentError", "People", "PrefixCount", "PureDP", "Quantiles", "Rate",
    "Rejected", "Release", "ReplayableEntropy", "Rounded", "RunnerError", "RunnerWarning",
    "RunningAverage", "SecretError", "SelectKeys", "Share", "ShrinkAcrossKeys", "SlidingCount",
    "SlidingSum", "SpanningForestCost", "SparseCounter", "StatisticCount", "SubstringCount", "Sum",
    "SystemEntropy", "TickAggregate", "TickCount", "TickHistogram", "TickRelease", "TopK",
    "TopKPerTick", "TopRelease", "TriangleCount", "UnboundedCounter", "Users", "Variance",
    "VectorRelease", "WeakBudgetWarning", "calibrate", "check", "choose", "half_width",
    "largest_error", "largest_half_width", "mechanisms", "metrics", "sparse_for", "suggest_bounds",
]
# fmt: on

# Where each name lives; the imports above say the same to editors and type checkers.
_NAMES = {
    "budget.budgets": "ApproxDP PureDP WeakBudgetWarning ZCDP",
    "budget.ledger": "Ledger",
    "budget.charges": "OverspentError",
    "budget.shares": "Share",
    "checks": "Error",
    "noise.entropy": "SystemEntropy",
    "noise.replay": "ReplayableEntropy SecretError",
    "mechanisms.base": "HorizonError",
    "counters.change": "Change",
    "counters.counter": "Counter calibrate",
    "counters.choose": "choose",
    "counters.clock": "Clock",
    "counters.errors": "half_width largest_error largest_half_width",
    "counters.lattice": "NotANumberError",
    "counters.people": "Users",
    "counters.selection": "SelectKeys",
    "counters.sparse": "SparseCounter sparse_for",
    "counters.total": "TOTAL",
    "counters.unbounded": "UnboundedCounter",
    "dofns.releases": "Rejected Release TickRelease TopRelease VectorRelease",
    "statistics.metrics.counts": "Count",
    "statistics.metrics.items": "Items",
    "statistics.metrics.means": "Mean Variance",
    "statistics.metrics.people": "People",
    "statistics.metrics.quantiles": "Quantiles",
    "statistics.metrics.rates": "Rate",
    "statistics.metrics.sums": "Sum",
    "transforms.aggregates": "TickAggregate",
    "transforms.bounds": "suggest_bounds",
    "transforms.checking": "CheckError Checked check",
    "transforms.counts": "PrefixCount",
    "transforms.distinct": "DistinctUsers",
    "transforms.elements": "StatisticCount",
    "transforms.graphs": (
        "CutGraph DegreeHistogram EdgeCount HighDegreeCount KStarCount SpanningForestCost "
        "TriangleCount"
    ),
    "transforms.histograms": "Histogram",
    "transforms.last": "LastPerTick",
    "transforms.postprocess": (
        "Isotonic Monotone NonNegative Rounded RunningAverage ShrinkAcrossKeys SlidingSum TopK "
        "TopKPerTick"
    ),
    "transforms.runners": "RunnerError RunnerWarning",
    "transforms.sequences": "EpisodeCount SubstringCount",
    "transforms.sliding": "SlidingCount",
    "transforms.tick_histograms": "TickHistogram",
    "transforms.ticks": "TickCount",
    "transforms.users": "BoundUsers",
    "local.transforms": "LocalConvexRisk LocalMedian",
}
_MODULES = {
    "mechanisms": "beam_dpcount.mechanisms",
    "metrics": "beam_dpcount.statistics.metrics",
}
_IMPORTING = RLock()  # Beam's own modules import each other in circles
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _IMPORTING:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
