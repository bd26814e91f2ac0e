"""Metrics and views from texts, or from mappings as YAML gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from beam_dpcount.arguments import texts
from beam_dpcount.arguments.kinds import number
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.clock import Clock
from beam_dpcount.statistics import metrics as known

METRICS: Mapping[str, Any] = {
    "count": known.Count,
    "items": known.Items,
    "mean": known.Mean,
    "people": known.People,
    "quantiles": known.Quantiles,
    "rate": known.Rate,
    "sum": known.Sum,
    "variance": known.Variance,
}
_TEXTS = ("domain", "field", "name", "scale", "where")
_LISTS = ("domain", "q")  # in a text, all values from there on are theirs
_EXAMPLE = "give e.g. {metric: mean, field: latency, low: 0, high: 5}"
_EXAMPLES = {
    "items": "items(action, view, buy)",
    "mean": "mean(latency, 0, 5)",
    "quantiles": "quantiles(latency, 0, 5, 0.5, 0.95)",
    "rate": "rate(level = ERROR)",
    "sum": "sum(amount, 0, 100)",
    "variance": "variance(latency, 0, 5)",
}


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
    taken = [field.name for field in fields(METRICS[name]) if field.init]
    options: dict[str, Any] = {}
    for argument, value in given.items():
        if argument != "metric":
            options[argument] = _value(name, argument, value, taken)
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
    name, kind = parts.name, METRICS[parts.name]
    taken = [field.name for field in fields(kind) if field.init]
    places = [field.name for field in fields(kind) if field.init and not field.kw_only]
    several = next((one for one in places if one in _LISTS), None)
    if several is not None:
        del places[places.index(several) :]
    options: dict[str, Any] = {}
    for one in parts.arguments:
        argument, value = one.name, one.value
        where = f"column {one.column} of {given!r}"
        if name == "rate" and argument not in taken and "where" not in options:
            argument = "where"
            if one.name is not None:  # in quotes, so that the text is taken to the letter
                value = f"{one.name}='{one.value}'"
        elif argument is None:
            argument = next((place for place in places if place not in options), several)
        if argument is None:
            problem = f"{where}: {name} takes no more values"
            raise ParameterError("metric", problem, _example(name))
        try:
            read = _value(name, argument, value, taken)
        except (ValueError, TypeError) as error:
            raise ParameterError("metric", f"{where}: {error}") from None
        if argument in _LISTS:
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
    return f"give e.g. {_EXAMPLES.get(name, name)}"


def _made(name: str, options: dict[str, Any], example: str) -> known.Metric:
    """A metric of this name; 0 is the default of `low`."""
    kind = METRICS[name]
    if "low" in (field.name for field in fields(kind)):
        options = {"low": 0, **options}
    try:
        metric: known.Metric = kind(**options)
    except TypeError as error:
        if "required" not in str(error):
            raise
        raise TypeError(f"metric {name!r} needs more arguments: {example}") from None
    return metric


def _value(metric: str, argument: str, given: object, taken: list[str]) -> Any:
    """The value of an argument of a metric, text or not."""
    if argument not in taken:
        hint = did_you_mean(argument, taken)
        takes = f"it takes {', '.join(taken)}"
        raise ValueError(f"metric {metric!r} takes no {argument!r}: {hint}{takes}")
    if given is None or argument in _TEXTS:
        return given
    try:
        if argument == "q" and isinstance(given, list | tuple):
            return [number(each) for each in given]
        return number(given)
    except ValueError:
        raise TypeError(f"{argument} of {metric!r} must be a number, got {given!r}") from None
