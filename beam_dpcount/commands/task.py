"""What a command is: the answers that the runner asks for, in that order."""

from __future__ import annotations

import argparse
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import beam_dpcount as dp
from beam_dpcount.arguments import groups
from beam_dpcount.arguments.argument import Argument
from beam_dpcount.arguments.table import Changes, applying
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.odometer import PRESENCE, ColumnUse, column
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.figures.pictures import Picture, Running
from beam_dpcount.commands.files.formats import (
    RELEASES,
    SOURCE_OPTIONS,
    STANDARD,
    Event,
    Places,
    Source,
    Table,
    person_of,
    value_of,
)
from beam_dpcount.commands.options import Parser, budget_of, entropy_of
from beam_dpcount.commands.report import (
    LEVEL,
    Estimate,
    errors,
    many,
    most_rows,
    one_run,
    period,
    protected,
    rule_of_thumb,
    table,
)
from beam_dpcount.counters.charged import CounterSpender
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.moments import zone_of
from beam_dpcount.noise.entropy import Entropy

if TYPE_CHECKING:
    from beam_dpcount.commands.files.tables import Output


class Listed(NamedTuple):
    """Texts that options list, and those that a row has."""

    option: str  # that lists them
    names: Sequence[str]
    of: Callable[[str, Event], Iterable[str]]  # those of a row, given its key
    most: int | None = None  # so many of a row count


def texts_of(cell: object) -> list[str]:
    """The texts of a cell that holds one, several or none."""
    several = cell if isinstance(cell, list | tuple) else [cell]
    return [str(one) for one in several if one is not None]


def described(counter: Counter) -> dict[str, Any]:
    """A counter in words, without what the manifest says elsewhere."""
    left_out = ("budget", "also_satisfies", "neighbouring_relation")
    return {name: text for name, text in counter.describe().items() if name not in left_out}


class Task(ABC):
    """One run of a command: what it reads, how it counts, what it writes, says and draws.

    The docstring of its module is its help. What it says depends only on options and public facts.
    """

    name: ClassVar[str]  # of the command
    known: ClassVar[str]  # what is public beside the keys: the end of a sentence
    counts: ClassVar[str]  # which arguments it takes: words of `arguments.table`
    own: ClassVar[Sequence[Argument]] = ()  # its own arguments
    changes: ClassVar[Changes] = {}  # what is otherwise here of the table's
    titles: ClassVar[Mapping[str, str]] = {}  # of groups of arguments, where they are others
    example: ClassVar[str] = ""  # a command line, for the help
    heading: ClassVar[str] = "private counts"
    people_are_public: ClassVar[bool] = True  # whose the rows are
    remedies: Mapping[str, str] = {}  # by parameters of the library, in words of the command
    names: ClassVar[Mapping[str, str]] = {}  # of options, by parameters that are called otherwise
    counter: Counter  # of the path in use, once the transform is applied
    entropy: Entropy  # where its noise comes from, likewise
    output: Output  # what is written, to be read back
    state_entropy: Entropy | None = None  # the noise of a state, of which this is one run
    account: str = ""  # what its --account says of this run, for the report
    by_columns: bool = False  # whether rows are counted in columns, without Beam
    truth: dict[str, list[float]] | None = None  # exact counts by key, for --show-truth

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.lists: dict[str, list[str]] = {}  # public texts that were read, by option

    @cached_property
    def given(self) -> Budget:
        """The budget of the options; a ValueError where they give none, or two."""
        return budget_of(self.options)

    def check(self) -> None:
        """Raises ValueError where options contradict each other, before a file is opened."""
        values = vars(self.options)
        if "value" in values:
            opt.check_bounds(self.options)
        if "per_user" in values:
            groups.check_people(values)
        if "select_keys" in values:
            groups.check_select(values)

    @abstractmethod
    def source(self) -> Source: ...

    def read(self, columns: Sequence[str], measure: Callable[..., object], **more: Any) -> Source:
        """The rows of --input, by these columns; see `Source`."""
        how = {name: getattr(self.options, name) for name in SOURCE_OPTIONS}
        return Source(self.options.input, columns=tuple(columns), measure=measure, **how, **more)

    def column_use(self) -> ColumnUse:
        """The columns that this run publishes and protects, for an account.

        At a clock no column is public. Per element keys, times and people are public: they decide
        which rows there are, and in which step of which key. All other columns that are read are
        counted, and protected.
        """
        source = self.source()
        read = {column(name) for name in source.names}
        if source.per_tick:
            return ColumnUse(protected=frozenset({PRESENCE, *read}))
        counted = {column(name) for name in source.columns}
        return ColumnUse(frozenset({PRESENCE, *(read - counted)}), frozenset(counted))

    @abstractmethod
    def transform(self, places: Places) -> Any:
        """The transform that counts; the places of rows are their public ids."""

    def shared(self, places: Places) -> dict[str, Any]:
        """The arguments that all transforms per element take."""
        options = self.options
        how = {name: getattr(options, name) for name in ("mechanism", "path")}
        if options.user is not None:
            how["users"] = groups.people(vars(options), person_of)
        return how | {"value": value_of, "element_id": places, "entropy": entropy_of(options)}

    def listed_texts(self, name: str, inputs: Sequence[str]) -> list[str]:
        """The public texts of --NAME or --NAME-file; see `public_list`.

        A file is read once, as it may be a pipe or be replaced: an account must record the list
        that is counted.
        """
        if name not in self.lists:
            self.lists[name] = opt.public_list(name, self.options, inputs)
        return self.lists[name]

    @property
    def goes_on(self) -> bool:
        """Whether this is one of several runs with one state, which are one count together."""
        return getattr(self.options, "state", None) is not None

    @property
    def releases_nothing(self) -> bool:
        """Whether it is public, once the transform is made, that nothing will be released."""
        return False

    @property
    def ticks_released(self) -> int | None:
        """How many ticks a run releases, where another one may release more of the same clock."""
        return None

    @classmethod
    def of(cls, options: argparse.Namespace) -> Task:
        """The task that these options ask for."""
        return cls(options)

    def use(self, transform: Any) -> None:
        """Takes over what the transform counts with, once it is applied."""
        self.counter, self.entropy = transform.counter, transform.entropy

    @property
    def spender(self) -> Any:
        """What spends the budget, for an account."""
        at_clock = not self.people_are_public
        return CounterSpender(self.counter, self.entropy, at_clock, self.options.user)

    @property
    def fingerprint(self) -> str:
        """What decides the noise of a replay, beside options."""
        return str(self.counter.fingerprint)

    @property
    def steps(self) -> int:
        """How many releases a stream has at most."""
        return self.counter.mechanism.horizon

    def finish(self, releases: object) -> Any:
        """What is written of the releases."""
        return releases

    def table(self) -> Table:
        """How it is written."""
        return RELEASES

    def listed(self) -> Listed | None:
        """The texts that options list, for --check; None where there are none."""
        return None

    # What a private look at the rows finds, for --check

    def beyond_bounds(self, events: Sequence[tuple[str, str, int | None, Any]]) -> int | None:
        """How many events (person, key, time, value) bounds on people leave out.

        None: `suggest_bounds` says it.
        """
        return None

    @property
    def split(self) -> Callable[[str], Sequence[str]] | None:
        """What gives the keys of a cell that counts under several; None: each is a key."""
        return None

    def keys_of(self, element: Any) -> list[Any]:
        """(key, event) for each key of a row."""
        return [element]

    @property
    def engine(self) -> Any:
        """What counts, for what is looked at of a clock."""
        return None

    def row_counts(self, transform: Any, element: Any, micros: int | None) -> bool | None:
        """Whether an element counts anything; None: as what is wrong with it says."""
        return None

    def never(self, values: Iterable[Any]) -> list[str]:
        """Public texts of options that no row has, in words."""
        return []

    # What is said before and after the run

    @abstractmethod
    def notes(self) -> list[str]:
        """What a row counts, and how much is released."""

    def outlook(self) -> list[str]:
        """Notes on a simulation: they differ from run to run, so that no manifest has them."""
        return []

    @abstractmethod
    def estimate(self) -> Estimate: ...

    def errors(self, estimate: Estimate) -> str:
        """The errors to expect."""
        return errors(self.counter, estimate, self.largest(), self.streams())

    def error(self) -> str:
        """The same in a few words."""
        estimate = self.estimate()
        one = dp.largest_half_width(self.counter, LEVEL)
        largest = dp.largest_error(self.counter, self.streams())
        chosen = " The first releases of a shown key are too high." * bool(estimate.chosen)
        most = f"{self.largest()} below {largest:.3g}"
        return f"a count{estimate.of} is within {one:.3g}, {most}.{chosen}"

    def statements(self) -> list[str]:
        """The exact statements on privacy and errors. They show no value."""
        return [self.guarantee(), self.errors(self.estimate()), *self.remarks()]

    def foretold(self) -> list[str]:
        """The exact statements, and how errors grow, for a dry run."""
        return [
            *self.statements(),
            "",
            table(self.counter, getattr(self.options, "every", None) or 1),
            "",
            rule_of_thumb(self.counter),
        ]

    def mechanism(self) -> Mapping[str, Any]:
        """What the manifest says of the counter."""
        return described(self.counter)

    @property
    def mechanisms(self) -> str:
        """What counts, in a few words."""
        return f"{self.counter.mechanism.name}, horizon {self.steps:,}"

    @property
    def drawn_by(self) -> str:
        """The law of the noise."""
        return type(self.counter.law).__name__

    def meaning(self, name: str) -> str | None:
        """What a column of the output holds, if it is not what others of its name do."""
        return None

    def covers(self) -> str:
        """Whose releases the guarantee covers."""
        if not self.options.key:
            return ""
        return "of a key " if self.options.user is None else "of all keys "

    def public(self) -> str:
        """What the guarantee takes as public: the end of a sentence."""
        people = "whose the rows are, " if self.options.user and self.people_are_public else ""
        return f"{'the keys, ' if self.options.key else ''}{people}{self.known}"

    def released_ticks(self) -> dict[str, Any]:
        """What the manifest says about how much of the clock is released."""
        return {}

    def scope(self) -> str:
        """What the guarantee protects."""
        if self.options.user is None:
            return "one row, not for all rows of a person"
        return protected(self.options, self.people_are_public)

    def unit(self) -> str:
        """What the guarantee protects, in a few words."""
        options = self.options
        if options.user is not None:
            most, person = most_rows(options, of=""), f"one person ({options.user})"
            if each := period(options):
                return f"one person's rows ({options.user}) of any one {each}, with {most}"
            if self.people_are_public:
                return f"what {person} says in {most} (not whose rows they are)"
            return f"{person} with {most}"
        there = vars(options).get("relation") == "add_remove"
        if not self.people_are_public:
            return "one row, there or not" if there else "what one row says, and when"
        says = "whether one row counts" if there else "what one row says"
        return f"{says} (not that it is there)"

    def budget(self) -> str:
        """What all releases satisfy together."""
        return str(self.counter.budget)

    def guarantee(self) -> str:
        return (
            f"Guarantee: all releases {self.covers()}together satisfy {self.budget()} for "
            f"neighbours under {self.counter.change}; public: {self.public()} It is for "
            f"{self.scope()}, and {one_run(self.options)}"
        )

    def written(self) -> str:
        return f"{self.heading}: {self.where}"

    @property
    def where(self) -> str:
        """Where the output is, in words."""
        return "standard output" if self.options.output == STANDARD else str(self.options.output)

    def findings(self) -> list[str]:
        """What the report says before the guarantee."""
        return []

    def streams(self) -> int:
        """How many streams the largest error is over: those of a key, or of all."""
        return self.counter.dimension or 1

    def largest(self) -> str:
        """The releases of these streams, in words."""
        every = "a key's" if self.options.key else "all"
        counts = many(self.streams() * self.counter.mechanism.horizon, "count")
        return f"the largest error of {every} {counts}"

    def remarks(self) -> list[str]:
        """What the report says after the errors to expect."""
        return []

    @abstractmethod
    def picture(self) -> Picture:
        """What --plot and --report draw of what was written."""

    def running(self, title: str, **how: Any) -> Running:
        """`picture` for a running count or sum of each key."""
        options, estimate, columns = self.options, self.estimate(), self.output.columns()
        return Running(
            title=title,
            covers=estimate.band,
            remark=estimate.remark,
            choice=[],
            keys=set(columns["key"]),
            columns=columns,
            only=options.plot_keys,
            time_axis=options.timestamp is not None,
            zone=zone_of(options.timezone),
            single=options.key is None,
            **how,
        )

    def exact(self, events: Iterable[Any], places: Places) -> dict[str, list[float]]:
        """The exact running counts by key, for --show-truth: private, one for each release."""
        from beam_dpcount.commands import truth  # here: task.py is read for --help

        return truth.of_elements(events, places, self.counter, self.options.path != "streaming")

    @classmethod
    def parser(cls) -> Parser:
        arguments = applying(f"files calibrated run {cls.counts}", cls.own, cls.changes)
        said = sys.modules[cls.__module__].__doc__
        parser = Parser(cls.name, said, cls.example, arguments, cls.titles)
        parser.set_defaults(rejected=None, on_reject="drop", show_truth=False, user=None)
        return parser
