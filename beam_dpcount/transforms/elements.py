"""What transforms that release after every element share: two paths, one account."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.ledger import Share, claim, plain_budget
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.choose import resolve
from beam_dpcount.counters.counter import LatticeCounter, calibrate
from beam_dpcount.dofns.elements import (
    ON_REJECT,
    REJECTED,
    CheckKeys,
    CountEachElement,
    CountWholeKey,
    Intake,
    ReadElements,
    WindowCheck,
)
from beam_dpcount.dofns.releases import Rejected
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.transforms.described import Described
from beam_dpcount.transforms.inputs import (
    PATHS,
    check_callable,
    check_choice,
    check_entropy,
    check_pairs,
    check_windows,
    in_windows,
    once_per_window,
    refuse_early_draws,
    use_streaming,
)
from beam_dpcount.transforms.runners import check_allowed, check_runner


class EachElement(Described):
    """A release of one counter per key after every element; see the transforms made of it.

    Attributes:
      counter: the calibrated counter; the one in use, once the transform is applied.
    """

    counter: LatticeCounter

    def __init__(
        self,
        budget: Budget | Share,
        on_reject: str,
        value: Callable[[Any], Any] | None,
        element_id: Callable[[Any], Any] | None,
        path: str,
        entropy: Entropy | None,
        allow_runner: bool = False,
    ) -> None:
        super().__init__()
        self._allowed = check_allowed(allow_runner)
        check_callable("value", value)
        check_callable("element_id", element_id)
        self._element = check_choice("on_reject", on_reject, ON_REJECT), value, element_id
        self._entropy = check_entropy(entropy)
        if self._entropy.is_replayable and element_id is None:
            raise ValueError(
                "replayable noise needs element_id, which gives the public and unique id of each "
                "element, such as its file and row, or partition and offset: without it a replay "
                "in another order shows which elements have equal values"
            )
        self._path = check_choice("path", path, PATHS)
        self._given = budget
        self._budget, self._account = plain_budget(budget)

    def _calibrate(
        self,
        mechanism: Any,
        horizon: int | None,
        change: Change,
        dimension: int | None = None,
        unit: float = 1,
    ) -> None:
        """The counters of both paths: whether the input is bounded is not known yet."""
        self._counters: dict[bool, LatticeCounter] = {}
        for streaming in (False, True):
            replays = streaming or self._entropy.is_replayable
            chosen = resolve(mechanism, horizon, self._budget, change, dimension, unit, replays)
            self._counters[streaming] = calibrate(chosen, self._budget, change, dimension, unit)
        self.counter = self._counters[self._path == "streaming"]

    @abstractmethod
    def _intake(self) -> Intake:
        """What reads elements for `counter`."""

    def expand(self, elements: PCollection[Any]) -> Any:
        check_windows(elements)
        check_pairs(elements)
        check_runner(elements.pipeline, self._allowed)
        streaming = use_streaming(elements, self._path)
        replayable = self._entropy.is_replayable
        if streaming or replayable:
            refuse_early_draws(self._counters[streaming].mechanism, replayable)
        claim(self._given, by=self.label)  # the last of the checks
        self.counter = self._counters[streaming]
        self._show_applied(elements.pipeline)
        entropy = self._entropy.named(elements.pipeline.transforms_stack[-1].full_label)
        return count_elements(elements, self._intake(), entropy, streaming)

    def problem(self, element: Any, micros: int | None = None) -> str | None:
        """Why an element does not count as it is; see `beam_dpcount.check`."""
        return self._intake().problem_of(element)

    def _describe(self) -> dict[str, str]:
        return {**self.counter.describe(), "entropy": repr(self._entropy), **self._account}


def count_elements(
    elements: PCollection[Any], intake: Intake, entropy: Entropy, streaming: bool
) -> Any:
    """The releases of checked elements, one each; with on_reject="collect", and the rejected."""
    made = intake.release_type
    check = _window_check(elements.windowing.windowfn)
    if streaming:
        # Whatever types are declared: a row that is behind one of a pair would pass for it.
        elements, bad_keys = _apply(elements, CheckKeys(intake, check), intake, tuple[str, Any])
        releases, refused = _apply(elements, CountEachElement(intake, entropy, check), intake, made)
    else:
        function, reader = elements.windowing.windowfn, ReadElements(intake, check)
        steps, bad_keys = _apply(elements, reader, intake, reader.output_type)
        grouped = once_per_window(steps, function) | "GroupByKey" >> beam.GroupByKey()
        releases, refused = _apply(grouped, CountWholeKey(intake, entropy), intake, made)
        for output in (releases, bad_keys, refused):
            in_windows(output, function)
    if not intake.collects:
        return releases
    outputs = [pcoll for pcoll in (bad_keys, refused) if pcoll is not None]
    return releases, outputs | "Rejected" >> beam.Flatten()


def _window_check(function: Any) -> WindowCheck:
    """That windows are those of FixedWindows, of SlidingWindows with gaps, or the global one."""
    if not hasattr(function, "size"):
        return WindowCheck(None)
    period = getattr(function, "period", function.size)
    return WindowCheck(function.size.micros, period.micros, function.offset.micros)


def _apply(
    elements: PCollection[Any], dofn: beam.DoFn, intake: Intake, output: Any
) -> tuple[PCollection[Any], PCollection[Any] | None]:
    """The main output and, where they are collected, the rejected elements."""
    label, applied = type(dofn).__name__, beam.ParDo(dofn)
    if not intake.collects:
        return elements | label >> applied.with_output_types(output), None
    typed = applied.with_output_types(output, **{REJECTED: Rejected})
    both = elements | label >> typed.with_outputs(REJECTED, main="main")
    return both.main, both[REJECTED]
