"""Metrics and views from texts, or from mappings as YAML gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from typing import Any

from beam_dpcount.arguments import texts
from beam_dpcount.arguments.kinds import number
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.clock import Clock
from beam_dpcount.statistics import metrics as known

METRICS: Mapping[str, type[known.Metric]] = {kind.__name__.lower(): kind for kind in known.ALL}
_EXAMPLE = "give e.g. {metric: mean, field: latency, low: 0, high: 5}"


def example(name: str) -> str:
    """A metric of this name as a text."""
    arguments = METRICS[name].example
    return f"{name}({arguments})" if arguments else name


def metric_of(given: object) -> known.Metric:
    """A metric from a text such as "mean(latency, 0, 5)", or from a mapping of its arguments.

    Raises:
      ValueError, TypeError: there is no such metric, or its arguments are wrong.
    """
    if isinstance(given, str):
        return _of_text(given)
    if not isinstance(given, Mapping) or "metric" not in given:
        problem = "must be texts, or mappings with a metric"
        raise TypeError(f"metrics {problem}, got {given!r}: {_EXAMPLE}")
    name = str(given["metric"])
    if name not in METRICS:
        hint = did_you_mean(name, METRICS)
        raise ValueError(f"unknown metric {name!r}: {hint}give one of {', '.join(METRICS)}")
    options = {n: _value(name, n, value) for n, value in given.items() if n != "metric"}
    return _made(name, options, _EXAMPLE)


def metrics_of(given: Sequence[Any] | None) -> list[known.Metric]:
    """Several metrics; by default, one count."""
    return [metric_of(one) for one in given] if given else [known.Count()]


def view_of(given: str, clock: Clock) -> Any:
    """The view of a clock that a text such as "last 7" names; its length is ticks or a duration.

    Raises:
      ValueError: it is not a view, or its length does not fit the clock.
    """
    view = texts.view(given)
    if view.name == "so-far":
        return clock
    if view.name == "each":
        return clock.each()
    try:
        return clock.last(view.length) if view.name == "last" else clock.restart(view.length)
    except ParameterError as error:
        name = f"{error.name} {error.problem}" if not error.whole else error.problem
        remedy = str(ParameterError("view", "", error.remedy, whole=True)).removeprefix(": ")
        raise ParameterError("view", f"{given!r}: {name}", remedy) from None


def views_of(given: Sequence[str] | None, clock: Clock) -> list[Any]:
    """Several views; by default, all events so far."""
    return [view_of(one, clock) for one in given] if given else [clock]


def needs_end(given: Sequence[str] | None) -> bool:
    """Whether one of the views needs a clock that ends."""
    return not given or any(texts.view(one).name == "so-far" for one in given)


def _of_text(given: str) -> known.Metric:
    """A metric from a text. Arguments without a name are taken in their order."""
    parts = texts.metric(given, METRICS)
    name, taken = parts.name, _arguments(parts.name)
    places = [field.name for field in taken.values() if not field.kw_only]
    # All values from the place of a list on are its.
    several = next((one for one in places if _is_list(taken[one])), None)
    if several is not None:
        del places[places.index(several) :]
    options: dict[str, Any] = {}
    for one in parts.arguments:
        argument, value = one.name, one.value
        where = f"column {one.column} of {given!r}"
        if "where" in taken and argument not in taken and "where" not in options:
            argument = "where"
            if one.name is not None:  # in quotes, so that the text is taken to the letter
                value = f"{one.name}='{one.value}'"
        elif argument is None:
            argument = next((place for place in places if place not in options), several)
        if argument is None:
            problem = f"{where}: {name} takes no more values"
            raise ParameterError("metric", problem, _example(name))
        try:
            read = _value(name, argument, value)
        except (ValueError, TypeError) as error:
            raise ParameterError("metric", f"{where}: {error}") from None
        if _is_list(taken[argument]):
            options[argument] = [*options.get(argument, ()), read]
        elif argument in options:
            raise ParameterError("metric", f"{where}: {argument} is given twice", "give it once")
        else:
            options[argument] = read
    try:
        return _made(name, options, _example(name))
    except (ValueError, TypeError) as error:
        raise ParameterError("metric", f"{given!r}: {error}") from None


def _example(name: str) -> str:
    return f"give e.g. {example(name)}"


def _arguments(name: str) -> dict[str, Field[Any]]:
    return {field.name: field for field in fields(METRICS[name]) if field.init}


def _is_list(field: Field[Any]) -> bool:
    return "Sequence[" in str(field.type)


def _made(name: str, options: dict[str, Any], example: str) -> known.Metric:
    """A metric of this name; 0 is the default of `low`."""
    if "low" in _arguments(name):
        options = {"low": 0, **options}
    try:
        return METRICS[name](**options)
    except TypeError as error:
        if "required" not in str(error):
            raise
        raise TypeError(f"metric {name!r} needs more arguments: {example}") from None


def _value(metric: str, argument: str, given: object) -> Any:
    """The value of an argument of a metric, text or not."""
    taken = _arguments(metric)
    if argument not in taken:
        hint = did_you_mean(argument, taken)
        takes = f"it takes {', '.join(taken)}"
        raise ValueError(f"metric {metric!r} takes no {argument!r}: {hint}{takes}")
    if given is None or "str" in str(taken[argument].type):
        return given
    try:
        if _is_list(taken[argument]) and isinstance(given, list | tuple):
            return [number(each) for each in given]
        return number(given)
    except ValueError:
        raise TypeError(f"{argument} of {metric!r} must be a number, got {given!r}") from None
