"""LocalMedian, LocalConvexRisk: every element is a client's, and enters only as its message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import RowCoder
from apache_beam.coders.typecoders import registry
from apache_beam.pvalue import PCollection
from apache_beam.transforms.trigger import DefaultTrigger
from apache_beam.transforms.window import GlobalWindows

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.ledger import claim, plain_budget
from beam_dpcount.budget.shares import Share
from beam_dpcount.checks import check_callable, check_flag
from beam_dpcount.dofns.rows import TO_NUMBERS, RowElementError, is_row, is_row_type
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.local.learner import (
    ConvexLearner,
    FloatArray,
    LocalLearner,
    LocalRisk,
    MedianLearner,
    merge,
)
from beam_dpcount.mechanisms import Mechanism
from beam_dpcount.reading import Function, call
from beam_dpcount.transforms.checking import RowCheck
from beam_dpcount.transforms.described import Described
from beam_dpcount.transforms.inputs import check_windows
from beam_dpcount.transforms.runners import check_runner

registry.register_coder(LocalRisk, RowCoder)

_BATCH = 1024


class MakeMessages(VersionedDoFn):
    """Batches of clients' values to messages, one each; what a device does with its own value.

    `value` takes the client's value out of an element; with `numbers` it cannot be a row.
    """

    def __init__(
        self, learner: LocalLearner, value: Function | None, numbers: bool = False
    ) -> None:
        self._learner, self._value, self._rows = learner, value, value is not None or not numbers

    def process(self, element: list[Any]) -> Iterator[FloatArray]:
        if not self._rows and any(map(is_row, element)):
            raise RowElementError(TO_NUMBERS)
        value = self._value
        taken = element if value is None else [_taken(value, client) for client in element]
        yield from self._learner.messages(taken)


def _taken(value: Function, element: object) -> Any:
    try:
        return value(element)
    except (Exception, SystemExit):  # whatever it is, that it happened is private
        return None


class LossOf(beam.CombineFn):
    """The server: messages, each shape (2T,), to one LocalRisk. Post-processing.

    Where devices make their messages themselves, with `learner.message`, this is all you need:
    `messages | beam.CombineGlobally(LossOf(learner)).without_defaults()`, with the same learner.

    Raises:
      ValueError: a message has another length; there is none at all.
    """

    def __init__(self, learner: LocalLearner) -> None:
        super().__init__()
        self._learner = learner

    def create_accumulator(self) -> tuple[int, FloatArray]:
        return 0, np.zeros(2 * self._learner.cells)

    def add_input(
        self, mutable_accumulator: tuple[int, FloatArray], element: object
    ) -> tuple[int, FloatArray]:
        clients, total = mutable_accumulator
        message = np.asarray(element, dtype=np.float64)
        if message.shape != total.shape:
            raise ValueError(f"messages have shape {total.shape}, got {message.shape}")
        return clients + 1, total + message

    def merge_accumulators(
        self, accumulators: Iterable[tuple[int, FloatArray]]
    ) -> tuple[int, FloatArray]:
        return merge([self.create_accumulator(), *accumulators])

    def extract_output(self, accumulator: tuple[int, FloatArray]) -> LocalRisk:
        clients, total = accumulator
        return self._learner.risk(total, clients)


class _LocalRisk(Described):
    """Attributes: learner, with the client's and the server's side."""

    learner: LocalLearner
    _numbers = False  # whether a client's value is one

    def __init__(self, budget: Budget | Share, value: Function | None, allow_runner: bool) -> None:
        super().__init__()
        self._allowed = check_flag("allow_runner", allow_runner)
        self._given, self._value = budget, check_callable("value", value)
        self._budget, self._account = plain_budget(budget)

    def expand(self, clients: PCollection[Any]) -> PCollection[LocalRisk]:
        check_windows(clients)
        windowing = clients.windowing
        if (
            not clients.is_bounded
            and isinstance(windowing.windowfn, GlobalWindows)
            and windowing.triggerfn == DefaultTrigger()
        ):
            raise ValueError(
                "there is one result a window, and the global window of an unbounded input never "
                "ends: put clients into windows before, e.g. beam.WindowInto(FixedWindows(3600))"
            )
        check_runner(clients.pipeline, self._allowed)
        claim(self._given, by=self.label)
        making: Any = beam.ParDo(MakeMessages(self.learner, self._value, self._numbers))
        batching: Any = beam.BatchElements(1, _BATCH, record_metrics=False)
        combining: Any = beam.CombineGlobally(LossOf(self.learner)).without_defaults()
        made: Any = (
            clients
            | "Batch" >> batching
            | "Messages" >> making.with_output_types(np.ndarray)
            | "Loss" >> combining.with_output_types(LocalRisk)
        )
        return made

    def problem(self, element: object, micros: int | None = None) -> str | None:
        """Why a client's element does not count as it is; see `beam_dpcount.check`."""
        return self.check_row(element, micros).problem

    def check_row(self, element: object, micros: int | None = None) -> RowCheck:
        """What becomes of a client's element; see `beam_dpcount.check`."""
        value = element if self._value is None else call("value", self._value, element)
        return RowCheck(
            self.learner.problem(value), counted=self.learner.profiles([value]).tobytes()
        )

    def _describe(self) -> dict[str, str]:
        return {**self.learner.describe(), **self._account}


class LocalMedian(_LocalRisk):
    """The median of numbers in [0, 1], under local differential privacy.

    PCollection[number], one element a client -> PCollection[LocalRisk], one a window (none where a
    window has no element), or as its trigger says: every firing is of the same messages. Numbers
    are clipped to [0, 1]; anything else counts as 1/2.

    Args:
      budget: PureDP, ApproxDP, ZCDP or a share of a `Ledger`: of each client, whose message costs
        it this much, however many clients there are. A share is for clients whose data other
        transforms of the ledger count too.
      cells: T, from 2 to 1024; about epsilon * sqrt(clients) is a good choice.
      mechanism: of both counters; default: the one of least mean variance.
      value: takes the number out of an element; where it raises, the client counts as 1/2.
      allow_runner: as for PrefixCount.

    Guarantee: every client's message satisfies `budget` for any two numbers the client may hold:
      see `MedianLearner`. The loss and its minimiser are functions of the messages. A pipeline's
      workers make the messages, and so see the numbers: for privacy against them, devices call
      `learner.message` themselves, and the pipeline `LossOf`. Public: the number of clients, their
      windows. Retries draw anew: each result that is seen over the same clients costs the budget.

    Attributes:
      learner: the client's side, the server's, and error bounds.

    Source: [FHU22, section 5.6], after Smith, Thakurta, Upadhyay 2017.

    Raises:
      ValueError, TypeError: at construction, for arguments out of range; when applied, for windows
        that overlap or merge, and for a share that is used already.
      RowElementError: when run, where elements are rows and there is no `value`.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     clients = pipeline | beam.Create([0.2, 0.4, 0.9])
      ...     risk = clients | dp.local.LocalMedian(dp.ApproxDP(1.0, 1e-6), cells=16)
      ...     _ = risk | beam.Map(lambda r: print(r.clients))
      3
    """

    learner: MedianLearner
    _numbers = True

    def __init__(
        self,
        budget: Budget | Share,
        cells: int,
        *,
        mechanism: Mechanism | type[Mechanism] | str | None = None,
        value: Callable[[Any], Any] | None = None,
        allow_runner: bool = False,
    ) -> None:
        super().__init__(budget, value, allow_runner)
        self.learner = MedianLearner(self._budget, cells, mechanism)

    def check_row(self, element: object, micros: int | None = None) -> RowCheck:
        if self._value is None and is_row(element):
            raise RowElementError(TO_NUMBERS)
        return super().check_row(element, micros)

    def expand(self, clients: PCollection[Any]) -> PCollection[LocalRisk]:
        declared: Any = clients.element_type
        if self._value is None and is_row_type(declared):
            raise RowElementError(TO_NUMBERS)
        types: tuple[Any, ...] = getattr(declared, "tuple_types", ())
        if self._value is None and types:
            raise TypeError(
                f"elements must be numbers, one a client, but they are {declared}: each would "
                "count as 1/2. Give value=, which takes the number out of an element"
            )
        return super().expand(clients)


class LocalConvexRisk(_LocalRisk):
    """The mean of the clients' convex losses on [0, 1], under local differential privacy.

    PCollection of anything, one element a client -> PCollection[LocalRisk], as LocalMedian.

    Args:
      budget, cells, mechanism, value, allow_runner: as for LocalMedian.
      gradient: a function of an element's value and of points in [0, 1], shape (T,), that gives the
        slopes of the client's loss at them; convex and 1-Lipschitz, so from -1 to 1 and increasing.
        The guarantee does not rest on it: see `ConvexLearner`.

    Guarantee, attributes, source, errors: as for LocalMedian; see `ConvexLearner`. The loss is
      known up to a constant: see `LocalRisk`.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> def slopes(client, points):  # of the squared loss
      ...     return points - client
      ...
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     clients = pipeline | beam.Create([0.2, 0.4, 0.9])
      ...     risk = clients | dp.local.LocalConvexRisk(dp.ZCDP(0.5), 16, gradient=slopes)
      ...     _ = risk | beam.Map(lambda r: print(r.clients))
      3
    """

    learner: ConvexLearner

    def __init__(
        self,
        budget: Budget | Share,
        cells: int,
        *,
        gradient: Callable[[Any, FloatArray], Any],
        mechanism: Mechanism | type[Mechanism] | str | None = None,
        value: Callable[[Any], Any] | None = None,
        allow_runner: bool = False,
    ) -> None:
        super().__init__(budget, value, allow_runner)
        self.learner = ConvexLearner(self._budget, cells, mechanism, gradient=gradient)
