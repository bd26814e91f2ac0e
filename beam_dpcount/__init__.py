"""Differentially private counts of live event streams, as Apache Beam transforms.

The map, in the direction of imports (each module says what it holds):

  budget, laws, noise       budgets and conversions; exact integer noise laws; where draws come from
  replay                    noise that is a function of a secret and of the stream's history
  mechanisms/               continual-counting mechanisms, one file each, and ALL of them
  sensitivity               what one event can change, and so in the encoder's output
  counter, analysis         calibrate() and the Counter; exact errors, intervals, choose()
  epochs, segments          the counters of Unbounded and Sparse
  ledger, accounting        one budget for a whole pipeline; counters as dp-accounting's events
  differences, optimal      exact errors of differences of releases; the best dense factorization
  items, ticks              items of a public domain as vectors; the clock of tick counts
  spread, statistics/       changes that reach several steps; functions of a stream that cause them
  coders                    counter states as versioned bytes
  local, cut_values         local learning, client and server; cuts from a release of CutGraph
  releases, rows            what comes out; what must not come in as a (key, value) pair
  dofns                     the DoFns: each element, each finished key
  tick_dofns                the DoFns at a clock: by timers, or all ticks of a key at once
  transforms/               the PTransforms

Everything up to `analysis` knows nothing of Beam.
"""

from beam_dpcount import mechanisms
from beam_dpcount.budget.budgets import ZCDP, ApproxDP, PureDP, WeakBudgetWarning
from beam_dpcount.budget.ledger import Ledger, OverspentError, Share
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.counter import Counter, NotANumberError, calibrate
from beam_dpcount.counters.errors import choose, half_width, largest_error, largest_half_width
from beam_dpcount.counters.sparse import SparseCounter, sparse_for
from beam_dpcount.counters.unbounded import UnboundedCounter
from beam_dpcount.dofns.releases import Rejected, Release, TopRelease, VectorRelease
from beam_dpcount.mechanisms.base import HorizonError
from beam_dpcount.noise.entropy import SystemEntropy
from beam_dpcount.noise.replay import ReplayableEntropy, SecretError
from beam_dpcount.transforms import (
    CutGraph,
    DegreeHistogram,
    EdgeCount,
    EpisodeCount,
    HighDegreeCount,
    Histogram,
    KStarCount,
    LastPerTick,
    LocalConvexRisk,
    LocalMedian,
    Monotone,
    NonNegative,
    PrefixCount,
    Rounded,
    RunningAverage,
    SlidingSum,
    SpanningForestCost,
    SubstringCount,
    TickCount,
    TickHistogram,
    TopK,
    TopKPerTick,
    TriangleCount,
)
from beam_dpcount.transforms.checking import Checked, CheckError, check
from beam_dpcount.transforms.runners import RunnerError, RunnerWarning

__all__ = [
    "ZCDP",
    "ApproxDP",
    "Change",
    "CheckError",
    "Checked",
    "Counter",
    "CutGraph",
    "DegreeHistogram",
    "EdgeCount",
    "EpisodeCount",
    "HighDegreeCount",
    "Histogram",
    "HorizonError",
    "KStarCount",
    "LastPerTick",
    "Ledger",
    "LocalConvexRisk",
    "LocalMedian",
    "Monotone",
    "NonNegative",
    "NotANumberError",
    "OverspentError",
    "PrefixCount",
    "PureDP",
    "Rejected",
    "Release",
    "ReplayableEntropy",
    "Rounded",
    "RunnerError",
    "RunnerWarning",
    "RunningAverage",
    "SecretError",
    "Share",
    "SlidingSum",
    "SpanningForestCost",
    "SparseCounter",
    "SubstringCount",
    "SystemEntropy",
    "TickCount",
    "TickHistogram",
    "TopK",
    "TopKPerTick",
    "TopRelease",
    "TriangleCount",
    "UnboundedCounter",
    "VectorRelease",
    "WeakBudgetWarning",
    "calibrate",
    "check",
    "choose",
    "half_width",
    "largest_error",
    "largest_half_width",
    "mechanisms",
    "sparse_for",
]
