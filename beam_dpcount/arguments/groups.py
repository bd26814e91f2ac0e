"""What several arguments say together, and that they fit each other: budget, clock, keys, people.

`values` has the values of arguments by name, as `Argument.read` gives them. Errors name arguments
as the door spells them; see `ParameterError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from beam_dpcount.arguments import timestamps
from beam_dpcount.arguments.argument import Argument
from beam_dpcount.arguments.kinds import COLUMNS, plain
from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.clock import Clock, now
from beam_dpcount.counters.moments import zone_of
from beam_dpcount.counters.people import Users
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.noise.replay import ReplayableEntropy
from beam_dpcount.times import is_number

Values = Mapping[str, Any]

_LIMITS = ("per_user", "max_keys", "per_key")
_SELECTING = {"select_delta": None, "at_least": 1, "select_every": 1}  # with their defaults


def refusal(name: str, problem: str, remedy: str = "") -> ParameterError:
    """An error that is a sentence by itself, about an argument and others."""
    return ParameterError(name, problem, remedy, whole=True)


def check_exclusive(arguments: tuple[Argument, ...], values: Values) -> None:
    """Raise ParameterError if two arguments are given of which only one may be."""
    given: dict[str, str] = {}
    for one in arguments:
        if one.one_of and values[one.name] not in (None, False):
            if one.one_of in given:
                other = given[one.one_of]
                raise refusal(one.name, f"give either {{{other}}} or {{{one.name}}}, not both")
            given[one.one_of] = one.name


def budget(values: Values) -> Budget:
    """The budget, or a ParameterError if there is none, more than one, or an impossible one."""
    epsilon, delta, rho = (values[name] for name in ("epsilon", "delta", "rho"))
    if rho is not None:
        if epsilon is not None or delta is not None:
            raise refusal("rho", "give either {rho} or {epsilon} with {delta}, not both")
        return ZCDP(rho)
    if epsilon is None:
        remedy = "{epsilon=}1 {delta=}1e-6, or {epsilon=}1, or {rho=}0.1"
        raise refusal("epsilon", "give a budget", remedy)
    return PureDP(epsilon) if delta is None else ApproxDP(epsilon, delta)


# The clock


def moment(name: str, given: object, timezone: str) -> Any:
    """Text in seconds since 1970: it is that number, or ISO 8601. All else stays as it is."""
    if not isinstance(given, str):
        return given
    text = plain(given)
    number = is_number(text)
    try:
        return Fraction(timestamps.parser(None, timezone)(text), 10**6)
    except ValueError:
        wrong = "lies outside the years 1 to 9999" if number else "is not a time"
        remedy = "give seconds since 1970, or ISO 8601 such as 2024-01-31T00:00:00Z"
        remedy = f"milliseconds? {remedy}" if number else remedy
    raise ParameterError(name, f"{wrong}, got {given!r}", remedy)


def until(values: Values) -> Any:
    """By when ticks must have ended, in seconds; None: now."""
    delay = values.get("delay")
    if delay is None:
        return moment("until", values["until"], values["timezone"])
    if values["until"] is not None:
        raise refusal("until", "give either {until}, a time, or {delay}, how long ago it is")
    return Fraction(now(), 10**6) - delay


def clock(values: Values) -> dict[str, Any]:
    """The arguments of a clock, for a transform; times as text are seconds since 1970."""
    if values["stop"] is None and values["horizon"] is None:
        problem = "give {stop}, the time of the end, or {horizon}, the number of ticks"
        raise refusal("stop", problem)
    times = {
        name: moment(name, values[name], values["timezone"])
        for name in ("start", "stop", "until")
        if name in values
    }
    start, stop = times["start"], times["stop"]
    if isinstance(start, Fraction) and isinstance(stop, Fraction) and stop <= start:
        got = f"got {values['stop']!r} and {values['start']!r}"
        remedy = "give a later {stop}, or {horizon}, the number of ticks, in its place"
        raise refusal("stop", f"{{stop}} must be after {{start}}, {got}", remedy)
    return {"tick": values["tick"], "horizon": values["horizon"], **times}


def _check_zone(name: str) -> None:
    try:
        zone_of(name)
    except ValueError:
        remedy = "give a name such as UTC or Europe/Paris (where the system has no time zone "
        remedy += "database, pip install tzdata)"
        raise ParameterError("zone", f"is not a time zone, got {name!r}", remedy) from None


def sentence_clock(values: Values, ends: bool) -> Clock:
    """The clock of a count that may have views.

    Args:
      values: of its arguments.
      ends: whether it must end, for a count of all rows so far.
    """
    zone = values["zone"]
    if zone is not None:
        _check_zone(zone)
    local = values if zone is None else {**values, "timezone": zone}
    tick = getattr(values["tick"], "text", "") or values["tick"]
    if values["stop"] is None and values["horizon"] is None:
        if ends:
            raise refusal(
                "stop",
                "give {stop}, the time of the end, or {horizon}, the number of ticks",
                "without an end, give {view=}each, or another view than so-far",
            )
        start = moment("start", values["start"], local["timezone"])
        return Clock(tick, start, zone=zone)
    given = clock(local)
    return Clock(tick, given["start"], given["horizon"], given["stop"], zone)


# Keys that nobody listed


def check_select(values: Values) -> None:
    """Raise ParameterError if options of `select_keys` do not fit it, or the budget."""
    if not values["select_keys"]:
        for name, default in _SELECTING.items():
            if values[name] not in (None, default):
                raise refusal(
                    name,
                    f"{{{name}}} needs {{select_keys}}, which shows keys by their counts",
                    "those of {keys} are shown whatever they count",
                )
        return
    given, whole = values["select_delta"], values["delta"]
    if given is None and whole is None:
        budget = "{rho}" if values["rho"] is not None else "{epsilon} alone"
        raise refusal(
            "select_delta",
            f"{{select_keys}} needs a delta, and {budget} has none",
            "some noise is so high that it shows a key that must not be seen; give e.g. "
            "{select_delta=}1e-7, which is then beside the budget, or {epsilon=}1 {delta=}1e-6",
        )
    if given is not None and whole is not None and given >= whole:
        problem = f"{{select_delta=}}{given:g} leaves nothing of {{delta=}}{whole:g} for the counts"
        raise refusal("select_delta", problem, "give less, or leave it out for half")


def selection(values: Values) -> SelectKeys:
    """Which keys are shown; a ParameterError for numbers out of range."""
    for name in ("at_least", "select_every"):
        check_whole(name, values[name])
    more = {"shards": values["select_shards"]} if "select_shards" in values else {}
    delta, at_least, every = (values[name] for name in _SELECTING)
    return SelectKeys(delta, at_least, every, **more)


# Keys in a tree


def check_tree(values: Values, leaves: str) -> None:
    """Raise ParameterError where `key` and what a tree needs do not go together.

    Args:
      values: of arguments.
      leaves: the argument that has the leaves.
    """
    key, given = values["key"], values[leaves] is not None
    if given and key is None:
        raise refusal(
            leaves, f"{{{leaves}}} needs {{key}}, a column for each level from the top on"
        )
    if not given and isinstance(key, tuple):
        names = " and ".join(key)
        problem = f"{{key}} names {names}, the levels of a tree, which needs {{{leaves}}}"
        raise refusal("key", problem, "give all of its leaves, or one column")
    if not given and values["level_shares"] is not None:
        raise refusal("level_shares", f"{{level_shares}} needs {{{leaves}}}, the leaves of a tree")


# People


def check_people(values: Values) -> None:
    """Raise ParameterError if a bound on people lacks what it needs."""
    if values["user"] is None:
        for name in (*_LIMITS, "gap", "per", "lateness", "changes"):
            if values.get(name) is not None:
                raise refusal(
                    name,
                    f"{{{name}}} needs {{user}} COLUMN, which says whose a row is",
                    "without it one row is protected, and not a person",
                )
        return
    if values["per_user"] is None and not _counts_activity(values):
        raise refusal(
            "per_user",
            "{user} needs {per_user} K, the most rows of a person that count",
            "the noise grows with it, and further rows are left out; give e.g. {per_user=}5",
        )
    if values.get("gap") is None:
        return
    if values["path"] == "streaming" and values["late"] == "fold":
        raise refusal(
            "gap",
            "{gap} with {path=}streaming needs {late=}drop",
            "fold counts a late row at another tick, which may be closer to others of its person",
        )
    if values.get("separator") is not None:
        raise refusal(
            "gap",
            "{gap} does not go with {separator}",
            "the keys of a row have one time, so that only one of them would count; leave one of "
            "the two out",
        )


def people(values: Values, by: Callable[[Any], Any]) -> Users | None:
    """Whom to protect, as `by` finds them in what was read of a row; None: one row."""
    if values["user"] is None:
        return None
    for name in _LIMITS:
        if values[name] is not None:
            check_whole(name, values[name])
    events, keys, in_key = (values[name] for name in _LIMITS)
    per = getattr(values.get("per"), "text", "") or values.get("per")
    gap, lateness, changes = (values.get(name) for name in ("gap", "lateness", "changes"))
    return Users(by, events, keys, in_key, gap, per=per, lateness=lateness, changes=changes)


def _counts_activity(values: Values) -> bool:
    """Whether people are bounded by how often they become active, or by keys in each period."""
    by_keys = values.get("per") is not None and values["max_keys"] is not None
    return by_keys or values.get("changes") is not None


# Noise that replays repeat


def entropy(values: Values, counted: Any) -> ReplayableEntropy | None:
    """Replayable noise, which depends on `counted` too; None: it comes from the system."""
    if values["secret_env"] is None and values["secret_file"] is None:
        if values["run_id"]:
            remedy = "give {secret_env} or {secret_file}"
            raise refusal("run_id", "{run_id} is for replayable noise", remedy)
        return None
    if values["run_id"] is None:
        problem = "replayable noise needs {run_id}, which names this count of these rows"
        raise refusal("run_id", problem)
    return ReplayableEntropy(values["secret_env"], key_file=values["secret_file"], run_id=counted)


def columns(arguments: tuple[Argument, ...], values: Values) -> Iterator[tuple[Argument, str]]:
    """The arguments that name columns, and the columns."""
    for one in arguments:
        if one.kind in COLUMNS and values[one.name] is not None:
            given = values[one.name]
            yield from ((one, name) for name in (given if isinstance(given, tuple) else (given,)))
