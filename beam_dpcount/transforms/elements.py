"""StatisticCount: a statistic of a growing stream, released privately after every element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpcount.checks import ParameterError, check_callable, check_whole
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.counters.fitted import fitted
from beam_dpcount.counters.people import Bound
from beam_dpcount.counters.users import group_of
from beam_dpcount.dofns.elements import (
    REJECTED,
    CheckKeys,
    CountEachElement,
    CountWholeKey,
    PassReleases,
    ReadElements,
)
from beam_dpcount.dofns.gathered import CountGathered, GatherNumbers
from beam_dpcount.dofns.intake import Intake, has_str_key
from beam_dpcount.dofns.parcels import StepParcels
from beam_dpcount.dofns.releases import Rejected
from beam_dpcount.dofns.windows import WindowCheck
from beam_dpcount.mechanisms import Sparse, Unbounded
from beam_dpcount.mechanisms.base import MAX_HORIZON, check_horizon
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.plans.counting import describe_people, refuse_early_draws
from beam_dpcount.statistics.base import Statistic
from beam_dpcount.statistics.items import check_state
from beam_dpcount.transforms.bounding import bounded_events
from beam_dpcount.transforms.checking import RowCheck, examine_person
from beam_dpcount.transforms.counting import Counting
from beam_dpcount.transforms.inputs import check_pairs, in_windows, once_per_window

NEEDS_HORIZON = (
    "{count} needs a horizon, as one event may change many steps: give one, and a mechanism of "
    "mechanisms.ALL or none"
)


NO_PERIODS = (
    "is of the ticks of a clock, and per element each element takes a step",
    "leave {per} out, or count at a clock: TickCount",
)


@dataclass(eq=False, repr=False)
class StatisticCount(Counting):
    """A private statistic of each key's stream, released after every element or every few.

    PCollection[KV[str, anything]] -> PCollection[Release], or of VectorRelease where the statistic
    has several coordinates; with on_reject="collect", -> (releases, rejected). For statistics of
    your own; SubstringCount, TriangleCount and others have a transform each. Order as for
    PrefixCount.

    Args:
      statistic: what is counted, such as `statistics.Triangles(100, max_degree=5)`.
      relation: the neighbouring relation, as `statistic.change` takes it.
      budget, horizon, every, on_reject, mechanism, value, element_id, path, entropy, allow_runner,
        users: as for PrefixCount; Unbounded needs a statistic that is `endless`, Sparse one number.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for streams that differ as `statistic.change(relation)` says. It rests on that method, which
      for a statistic of your own is your word: test it by brute force. Public, so not protected:
      the keys, the statistic's parameters, and the number, order and timestamps of the elements.
      Noise and retries as for PrefixCount.

    Attributes:
      counter: as for PrefixCount.
      labels: what the coordinates of a release count, as a tuple of texts; None for one number.

    Raises:
      ValueError, TypeError: as for PrefixCount.

    Example:
      >>> import beam_dpcount as dp
      >>> from beam_dpcount.statistics import Triangles
      >>> triangles = Triangles(100, max_degree=5)
      >>> count = dp.StatisticCount(dp.ZCDP(0.5), 1000, triangles, relation="edge")
      >>> count.counter.mechanism.name
      'ProfiledBLT'
    """

    horizon: int | None
    statistic: Statistic
    _: KW_ONLY
    every: int = 1
    element_id: Callable[[Any], Any] | None = None

    counter: LatticeCounter = field(init=False)

    def _build(self) -> Statistic:
        """What is counted."""
        given: Any = self.statistic
        if not isinstance(given, Statistic):
            example = "give e.g. statistics.Triangles(100, max_degree=5)"
            raise TypeError(f"statistic must be a Statistic, got {given!r}: {example}")
        return given

    @property
    def labels(self) -> tuple[str, ...] | None:
        """What the coordinates of a release count; None for one number."""
        return self.statistic.labels

    def _check_mechanism(self) -> None:
        """Raise ValueError for a mechanism, or a lack of horizon, that this count cannot take."""
        if not self.statistic.endless:
            if self.horizon is None or isinstance(self.mechanism, Unbounded | Sparse):
                raise ValueError(NEEDS_HORIZON.format(count=type(self).__name__))
        elif isinstance(self.mechanism, Sparse) and self.statistic.dimension is not None:
            problem = "Sparse counts single numbers, not histograms"
            raise ValueError(f"{problem}: give a horizon, or Unbounded")

    def _set_up(self) -> None:
        check_callable("element_id", self.element_id)
        if self._entropy.is_replayable and self.element_id is None:
            raise ValueError(
                "replayable noise needs element_id, which gives the public and unique id of each "
                "element, such as its file and row, or partition and offset: without it a replay "
                "in another order shows which elements have equal values"
            )
        self.statistic = self._build()
        self._check_mechanism()
        check_whole("every", self.every)
        if self.horizon is not None and self.every > check_horizon(self.horizon):
            problem = f"is {self.every} steps, but the horizon has only {self.horizon}"
            remedy = "nothing would be released; give a smaller every"
            raise ParameterError("every", problem, remedy)
        change, dimension = self._change(), self.statistic.dimension
        unit = self.statistic.lattice_unit
        how: dict[str, Any] = {"change": change, "dimension": dimension, "unit": unit}
        self._counters = self._calibrated((False, True), self.mechanism, self.horizon, **how)
        if self.statistic.adds_one:
            self._counters = {path: fitted(counter) for path, counter in self._counters.items()}
        if self.statistic.remedy is not None:
            for counter in self._counters.values():
                check_state(_state_size(counter), dimension or 1, self.statistic.remedy)
        self.counter = self._counters[self.path == "streaming"]

    def _change(self) -> Change:
        """What is protected: of one element, or of all elements of a person that count."""
        one, users = self.statistic.change(self.relation), self.users
        if users is None:
            return one
        if users.per is not None:
            raise ParameterError("per", *NO_PERIODS)
        if users.gap is not None:
            raise ValueError(
                "after every element each one takes a step, whenever it is: leave gap out of users"
            )
        if self.horizon is None or isinstance(self.mechanism, Unbounded | Sparse):
            raise ValueError("users= needs a horizon, and a mechanism of mechanisms.ALL or none")
        bound = users.bound()
        own = self.statistic.own_step
        return group_of(one, bound.most, bound.per_key, users.asserted, own)

    def _check_elements(self, elements: PCollection[object]) -> None:
        check_pairs(elements, self.statistic.of_pairs and self.value is None)

    def _intake(self) -> Intake:
        counted = None if self.users is None else repr(self.users.bound())
        how = self.on_reject, self.value, self.element_id, self.every, counted
        return Intake(self.counter, self.statistic, *how)

    def expand(self, elements: PCollection[Any]) -> Any:
        streaming = self._path_of(elements)
        entropy = self._use(self._counters[streaming], elements, streaming)
        if self.users is not None and self.bounds_people:
            parcels = StepParcels(_window_check(elements.windowing.windowfn), self.element_id)
            bound = self.users.bound()
            how = streaming, entropy
            elements = bounded_events(elements, self.users, bound, parcels, *how)
        return count_elements(elements, self._intake(), entropy, streaming)

    def on_bounded_input(self, label: str) -> tuple[LatticeCounter, Intake, Entropy]:
        """What counts a finished input in the global window, what reads it, and the noise.

        Args:
          label: of the transform, by which noise goes.
        """
        counter = self._counters[False]
        if self._entropy.is_replayable:
            refuse_early_draws(counter.mechanism, replayable=True)
        return counter, self._intake(), self._entropy.named(label)

    @property
    def bound(self) -> Bound | None:
        """What is bounded here of people's elements; None: nothing."""
        return self.users.bound() if self.users and self.bounds_people else None

    def problem(self, element: object, micros: int | None = None) -> str | None:
        """Why an element does not count as it is; see `beam_dpcount.check`."""
        return self.check_row(element, micros).problem

    def check_row(self, element: Any, micros: int | None = None) -> RowCheck:
        """What becomes of an element; see `beam_dpcount.check`."""
        problem, codes, identity = self._intake().examine(element)
        if not has_str_key(element):
            return RowCheck(problem, keys=())
        key = str.__str__(element[0])
        problem, person = examine_person(self.users, element[1], problem)
        # Rejected elements use up their person's bound, too.
        return RowCheck(problem, (key,), (key,), person, codes, identity)

    def _describe(self) -> dict[str, str]:
        every = "every step" if self.every == 1 else f"every {self.every} steps"
        return {
            **self.counter.describe(),
            **self.statistic.describe(),
            "released_after": every,
            **describe_people(self.users, self._entropy.is_replayable, self.path),
            "entropy": repr(self._entropy),
            **self._account,
        }


@dataclass(eq=False, repr=False)
class NamedCount(StatisticCount):
    """A StatisticCount whose fields have the names of its statistic's parameters."""

    statistic: Statistic = field(init=False)

    _kind: ClassVar[type[Statistic]]

    def _build(self) -> Statistic:
        return self._of(self._kind)

    def _of(self, kind: type[Statistic]) -> Statistic:
        """A statistic of these fields, which then show its parameters as it has them."""
        names = [one.name for one in fields(kind)]
        statistic = kind(**{name: getattr(self, name) for name in names})
        for name in names:
            setattr(self, name, getattr(statistic, name))
        return statistic


def _state_size(counter: Any) -> int:
    """The most numbers kept per key and coordinate."""
    size = counter.state_size
    if isinstance(size, int):
        return size
    return int(size((counter.horizon or MAX_HORIZON) - 1))  # in the last epoch


def count_elements(
    elements: PCollection[Any], intake: Intake, entropy: Entropy, streaming: bool
) -> Any:
    """The releases of checked elements, one each; with on_reject="collect", and the rejected."""
    made = intake.release_type
    check = _window_check(elements.windowing.windowfn)
    if streaming:
        gathers = intake.is_lean and not entropy.is_replayable
        # Whatever types are declared: a row declared as a pair would pass for one.
        checked: Any = GatherNumbers(intake, check) if gathers else CheckKeys(intake, check)
        payload: Any = bytes if gathers else Any
        elements, bad_keys = _apply(elements, checked, intake, tuple[str, payload])
        counting = CountGathered if gathers else CountEachElement
        releases, refused = _apply(elements, counting(intake, entropy, check), intake, made)
    else:
        function, reader = elements.windowing.windowfn, ReadElements(intake, check)
        steps, bad_keys = _apply(elements, reader, intake, reader.output_type)
        grouped = once_per_window(steps, function) | "GroupByKey" >> beam.GroupByKey()
        releases, refused = _apply(grouped, CountWholeKey(intake, entropy), intake, made)
        for output in (releases, bad_keys, refused):
            in_windows(output, function)
        if intake.is_lean:  # these come when a bundle is finished
            passed: Any = beam.ParDo(PassReleases()).with_output_types(made)
            releases = releases | "PassReleases" >> passed
    if not intake.collects:
        return releases
    outputs = [pcoll for pcoll in (bad_keys, refused) if pcoll is not None]
    return releases, outputs | "Rejected" >> beam.Flatten()


def _window_check(function: Any) -> WindowCheck:
    """For FixedWindows, SlidingWindows with gaps, or the global window."""
    if not hasattr(function, "size"):
        return WindowCheck(None)
    period = getattr(function, "period", function.size)
    return WindowCheck(function.size.micros, period.micros, function.offset.micros)


def _apply(
    elements: PCollection[Any], dofn: beam.DoFn, intake: Intake, output: object
) -> tuple[PCollection[Any], PCollection[Any] | None]:
    """The main output and, where they are collected, the rejected elements."""
    label, applied = type(dofn).__name__, beam.ParDo(dofn)
    if not intake.collects:
        return elements | label >> applied.with_output_types(output), None
    typed = applied.with_output_types(output, **{REJECTED: Rejected})
    both = elements | label >> typed.with_outputs(REJECTED, main="main")
    return both.main, both[REJECTED]
