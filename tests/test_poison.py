"""What the user's functions raise of an event is data: it counts nothing, and stops nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount.dofns.intake import Intake, RejectedElementError
from beam_dpcount.dofns.parcels import StepParcels, TickParcels
from beam_dpcount.dofns.rows import is_row
from beam_dpcount.dofns.users import SendToShards
from beam_dpcount.dofns.windows import WindowCheck
from beam_dpcount.reading import UNREADABLE, read, text_of
from beam_dpcount.states.placement import Placement
from beam_dpcount.statistics.numbers import Numbers
from beam_dpcount.transforms.ticks import TickNumbers
from tests.hostile import Hidden, Shut
from tests.runners import PATHS, SECOND, Row, feed, run
from tests.scripted import ScriptedEntropy
from tests.sentences import counted

SECRET = "s3cr3t"
BUDGET = dp.ZCDP(0.5)
EVERYWHERE = (GlobalWindow(),)


class OwnError(Exception):
    """An error of the user's own."""


def _deep(depth: int) -> int:
    return 1 + _deep(depth + 1)


def _raise(error: BaseException) -> Any:
    raise error


# What a function makes of an event that is like no other.
POISON: dict[str, Callable[[], Any]] = {
    "of None": lambda: None.strip(),  # type: ignore[attr-defined]
    "recursion": lambda: _deep(0),
    "runtime": lambda: _raise(RuntimeError(SECRET)),
    "stop": lambda: _raise(StopIteration(SECRET)),
    "assertion": lambda: _raise(AssertionError(SECRET)),
    "os": lambda: _raise(OSError(SECRET)),
    "buffer": lambda: _raise(BufferError(SECRET)),
    "own": lambda: _raise(OwnError(SECRET)),
}
STOPS: dict[str, type[BaseException]] = {
    "memory": MemoryError,
    "interrupt": KeyboardInterrupt,
    "exit": SystemExit,
    "generator": GeneratorExit,
}
poisons = pytest.mark.parametrize("kind", POISON)
stops = pytest.mark.parametrize("kind", STOPS)


def who(event: Any) -> Any:
    return event["user"]()


def number(event: Any) -> Any:
    return event["n"]()


def item(event: Any) -> Any:
    return event["item"]()


class Const:
    """A function without arguments that gives this."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


class Poison:
    """One that fails."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self) -> Any:
        return POISON[self.kind]()


class Prickly(float):
    """A number of which the looking at it fails, and is known by its own error only."""

    def _fail(self, *_: Any) -> Any:
        raise OwnError(SECRET)

    __lt__ = __gt__ = __le__ = __ge__ = __eq__ = __float__ = __round__ = _fail  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class Masked:
    """Whatever asks for its class fails."""

    @property
    def __class__(self) -> Any:
        raise OwnError(SECRET)

    @__class__.setter
    def __class__(self, kind: Any) -> None: ...


def masked() -> Any:
    return Masked()


def prickly() -> Any:
    return Prickly(1.0)


def event(user: Any = "ann", n: Any = 1, what: Any = "x") -> dict[str, Any]:
    made = {"user": user, "n": n, "item": what}
    return {key: each if callable(each) else Const(each) for key, each in made.items()}


CLOCK: dict[str, Any] = {"tick": 10, "start": 0, "horizon": 3}
KEYS: dict[str, Any] = {**CLOCK, "keys": ["a", "b"]}
NUMBER = dp.Sum(low=0, high=1)
FIELDS = [dp.Count(), dp.Sum("n", 0, 5)]


def fields(event: Any) -> dict[str, Any]:
    return {"n": event["n"]()}


def people(events: int = 9) -> dp.Users:
    return dp.Users(who, events, per_key=events)


def bound(**how: Any) -> Any:
    return _Bound(how)


class _Bound(beam.PTransform[Any, Any]):
    def __init__(self, how: dict[str, Any]) -> None:
        super().__init__()
        self._how = how

    def expand(self, events: Any) -> Any:
        counts = {"n": TickNumbers(BUDGET, **KEYS, value=number, **self._how)}
        return (events | dp.BoundUsers(people(), counts))["n"]


# Transforms at a clock, and which of an event's fields may be poison.
AT_TICKS: dict[str, tuple[Callable[..., Any], str]] = {
    "TickCount": (lambda **how: TickNumbers(BUDGET, **KEYS, value=number, **how), "n"),
    "TickCount of people": (
        lambda **how: TickNumbers(BUDGET, **KEYS, value=number, users=people(), **how),
        "user",
    ),
    "TickCount of selected keys": (
        lambda **how: TickNumbers(
            dp.ApproxDP(1.0, 1e-6), **CLOCK, keys=dp.SelectKeys(), value=number, **how
        ),
        "n",
    ),
    "last": (
        lambda **how: counted(BUDGET, NUMBER, last=2, **KEYS, value=number, **how),
        "n",
    ),
    "vectors": (lambda **how: counted(BUDGET, FIELDS, **KEYS, value=fields, **how), "n"),
    "people": (
        lambda **how: counted(BUDGET, dp.People(), **KEYS, users=dp.Users(who, 9), **how),
        "user",
    ),
    "BoundUsers": (bound, "user"),
}  # fmt: skip
EACH_ELEMENT: dict[str, tuple[Callable[..., Any], str]] = {
    "PrefixCount": (lambda **how: dp.PrefixCount(BUDGET, 9, value=number, **how), "n"),
    "PrefixCount of people": (
        lambda **how: dp.PrefixCount(BUDGET, 9, value=number, users=people(), **how),
        "user",
    ),
    "Histogram": (lambda **how: dp.Histogram(BUDGET, 9, ["x", "y"], value=item, **how), "item"),
    "SubstringCount": (
        lambda **how: dp.SubstringCount(BUDGET, 9, ["x", "y"], 2, value=item, **how),
        "item",
    ),
}
PLACE = {"user": "user", "n": "n", "item": "what"}
ROWS: list[Row] = [("a", event(), 5 * SECOND), ("b", event("bob"), 15 * SECOND)]


def releases(make: Callable[..., Any], rows: list[Row], path: str) -> Any:
    made = run(lambda p: p | feed(rows) | make(path=path, entropy=ScriptedEntropy())).releases
    return made


def odd_events(name: str) -> list[Any]:
    """An event for each kind of poison, and values that are themselves poison."""
    odd: list[Any] = [Poison(kind) for kind in POISON]
    odd += [masked, prickly if name == "n" else masked]
    return [event(**{PLACE[name]: each}) for each in odd]


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", AT_TICKS)
def test_at_a_clock_such_an_event_leaves_no_trace(name: str, path: str) -> None:
    make, field = AT_TICKS[name]
    odd: list[Row] = [("a", each, 6 * SECOND) for each in odd_events(field)]
    assert releases(make, [*odd, *ROWS, *odd], path) == releases(make, ROWS, path)


@pytest.mark.pipeline
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", EACH_ELEMENT)
def test_per_element_it_takes_its_step_and_counts_nothing(name: str, path: str) -> None:
    make, field = EACH_ELEMENT[name]
    plain = event(**{PLACE[field]: None})
    for each in (odd_events(field)[:5], odd_events(field)[5:]):
        odd: list[Row] = [("a", one, 6 * SECOND) for one in each]
        instead: list[Row] = [("a", plain, 6 * SECOND) for _ in each]
        assert releases(make, [*ROWS, *odd], path) == releases(make, [*ROWS, *instead], path)


@poisons
def test_who_asks_for_it_gets_an_error_without_the_cause(kind: str) -> None:
    count = dp.PrefixCount(BUDGET, 9, value=number, on_reject="raise")
    with pytest.raises(RejectedElementError) as caught:
        count._intake().codes("a", event(n=Poison(kind)), 0)
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None
    strict = counted(BUDGET, FIELDS, **KEYS, value=fields, on_reject="raise")
    with pytest.raises(RejectedElementError) as caught:
        strict.engine._numbers_of.number("a", event(n=Poison(kind)), 0)
    assert caught.value.__context__ is None


def outcome(function: Callable[[], Any]) -> Any:
    """What a function gives, or the error that it raises."""
    try:
        return function()
    except Exception as error:
        return error


@poisons
def test_every_error_is_data(kind: str) -> None:
    assert outcome(lambda: read(POISON[kind])) is UNREADABLE


@pytest.mark.parametrize("make", [masked, prickly])
def test_no_code_of_an_id_is_run(make: Callable[[], Any]) -> None:
    assert outcome(lambda: text_of(make())) is None


@stops
def test_what_no_event_is_to_blame_for_stops(kind: str) -> None:
    """Memory is the machine's, and the others ask the worker to end."""
    error = STOPS[kind]

    def fail(_: Any) -> Any:
        raise error(SECRET)

    with pytest.raises(error):
        dp.PrefixCount(BUDGET, 9, value=fail)._intake().codes("a", 1, 0)
    steps = StepParcels(WindowCheck(None), None)
    sends = SendToShards(dp.Users(fail, 2, per_key=1), steps, Placement(1))
    with pytest.raises(error):
        sends.read(("a", 1), _Placed())
    aggregate = counted(BUDGET, FIELDS, **KEYS, value=fail).engine
    with pytest.raises(error):
        aggregate._numbers_of.number("a", 1, 0)


class _Placed:
    windows, timestamp_micros = EVERYWHERE, 0


class Unencodable:
    """Its pickling takes more memory than there is."""

    def __reduce__(self) -> Any:
        raise MemoryError


def test_an_event_that_memory_does_not_suffice_to_send_stops() -> None:
    """Else whether one counts would depend on those before it."""
    with pytest.raises(MemoryError):
        StepParcels(WindowCheck(None), None).wrap(("a", Unencodable()), 0, EVERYWHERE)


def test_what_our_own_code_raises_is_not_taken_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours stops; it does not count nothing in silence."""
    count = TickNumbers(
        BUDGET, **KEYS, value=lambda _: 1, users=dp.Users(lambda _: "u", 2, per_key=1)
    )
    parcels = count.parcels(beam.Pipeline() | beam.Create([("a", 1)]))
    intake = dp.PrefixCount(BUDGET, 9, value=lambda _: None, on_reject="raise")._intake()

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(TickParcels, "payload", broken)
    with pytest.raises(ZeroDivisionError):
        parcels.person(lambda _: "u", ("a", 1))
    monkeypatch.setattr(type(intake), "refuse", broken)
    with pytest.raises(ZeroDivisionError):
        intake.codes("a", 1, 0)


# Classes that fail when they are asked for something


class Willing(type):
    """A class that has whatever it is asked for."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and "dataclass" not in name:
            raise AttributeError(name)
        return {}


class HiddenPair(tuple[Any, ...], metaclass=Shut):
    pass


class WillingValue(metaclass=Willing):
    pass


class WillingPair(tuple[Any, ...], metaclass=Willing):
    pass


ASKED: dict[str, Callable[[Any], Any]] = {
    "value": lambda event: Hidden(),
    "pair": lambda event: HiddenPair(event),
    "in a pair": lambda event: (Hidden(), 1),
    "in its own pair": lambda event: HiddenPair((Hidden(), 1)),
    "willing value": lambda event: WillingValue(),
    "willing pair": lambda event: WillingPair(event),
}
TWO: dict[str, Any] = {"tick": 10, "start": 0, "horizon": 2, "keys": ["a"]}
ASKING: dict[str, Callable[[], Any]] = {
    "TickCount": lambda: TickNumbers(BUDGET, 10, 0, horizon=2, keys=["a"]),
    "people": lambda: counted(BUDGET, dp.People(), **TWO, users=dp.Users("user", 2)),
    "vectors": lambda: counted(BUDGET, [dp.Count(), dp.Rate("n > 0")], **TWO),
}


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.parametrize("name", ASKING)
def test_a_class_that_is_asked_for_something_stops_nothing(name: str, kind: str) -> None:
    """Whether an event is a row is found out without its class's own class."""
    change: Any = beam.Map(ASKED[kind]).with_output_types(Any)
    outcome = run(lambda p: p | feed([("a", 1, SECOND)]) | change | ASKING[name]())
    assert len(outcome.releases) == 2


@pytest.mark.parametrize("kind", ASKED)
def test_rows_are_told_without_asking_a_class(kind: str) -> None:
    assert not is_row(ASKED[kind](("a", 1)))


def test_a_refusal_names_a_class_without_asking_it() -> None:
    class Named(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]
            return SECRET

    class Value(metaclass=Named):
        def __repr__(self) -> str:
            raise RuntimeError(SECRET)

    counter = dp.calibrate(dp.mechanisms.BinaryTree(4), BUDGET)
    intake = Intake(counter, Numbers(0, 1, 1), "collect")
    assert intake.refuse_key(Value(), 0).reason.endswith("but Value")
    assert intake.refuse_key((Value(), 1), 0).reason == "the key is not a str but Value"
    assert intake.refuse("a", Value(), 0, "bad").element == "<Value>"
