"""Metrics from names and mappings, as YAML gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from beam_dpcount.arguments.kinds import number
from beam_dpcount.arguments.meant import did_you_mean
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
_EXAMPLE = "give e.g. {metric: mean, field: latency, low: 0, high: 5}"


def metric_of(given: Any) -> known.Metric:
    """A metric from a mapping of its name and arguments; a name alone is one without arguments.

    Raises:
      ValueError, TypeError: there is no such metric, or its arguments are wrong.
    """
    if isinstance(given, str):
        given = {"metric": given}
    if not isinstance(given, Mapping) or "metric" not in given:
        raise TypeError(f"metrics must be mappings with a metric, got {given!r}: {_EXAMPLE}")
    name = str(given["metric"])
    if name not in METRICS:
        hint = did_you_mean(name, METRICS)
        raise ValueError(f"unknown metric {name!r}: {hint}give one of {', '.join(METRICS)}")
    kind = METRICS[name]
    taken = [field.name for field in fields(kind) if field.init]
    options = {"low": 0} if "low" in taken else {}
    for argument, value in given.items():
        if argument != "metric":
            options[argument] = _value(name, argument, value, taken)
    try:
        metric: known.Metric = kind(**options)
    except TypeError as error:
        if "required" not in str(error):
            raise
        raise TypeError(f"metric {name!r} needs more arguments: {_EXAMPLE}") from None
    return metric


def _value(metric: str, argument: str, given: Any, taken: list[str]) -> Any:
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
