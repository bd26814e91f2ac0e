"""What a count shows of its public parameters, and that they stay as they are."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from beam_dpcount.counters.counter import Counter
from beam_dpcount.notebooks import described

ENDLESS = "without an end"  # of the ticks of a clock

# What says where and how a count runs, and not what is counted.
_NOT_COUNTED = frozenset(("budget", "entropy", "allow_runner", "until"))


def configuration(transform: object) -> str:
    """All public arguments of a transform that say what it counts, as one text."""
    given: Any = transform
    values = {field.name: getattr(given, field.name, None) for field in fields(given)}
    return configured({n: x for n, x in values.items() if n not in _NOT_COUNTED})


def configured(value: object) -> str:
    """An argument as text that is the same in another process: functions by their code."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {configured(x)}' for name, x in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(configured, value))})"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        inner: Any = value
        known = {one.name: getattr(inner, one.name, None) for one in fields(inner)}
        for name in ("present", "time_columns"):  # when it was made, and what `fingerprint` says
            known.pop(name, None)
        return type(value).__qualname__ + configured(known)
    code = getattr(value, "__code__", None)
    if code is not None:
        plain = [each for each in code.co_consts if not hasattr(each, "co_code")]
        read = repr((code.co_code, code.co_names, plain, code.co_varnames)).encode()
        name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        return f"{name} {hashlib.blake2b(read, digest_size=8).hexdigest()}"
    return repr(value)


class Plan:
    """A count that shows its public parameters, never seeds. A transform runs it on Beam."""

    def default_label(self) -> str:
        """What it is called."""
        return type(self).__name__

    def _fix(self) -> None:
        """At the end of `__post_init__`: noise and account were made for these arguments."""
        given: Any = self
        self._fixed = frozenset(field.name for field in fields(given))

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__.get("_fixed", ()):
            kind = self.default_label()
            raise AttributeError(f"{name} of {kind} is fixed: make another {kind} with it")
        super().__setattr__(name, value)

    @abstractmethod
    def _describe(self) -> Mapping[str, str]:
        """The public parameters."""

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        lines = (f"  {name}: {text}" for name, text in self._printed() if text)
        return "\n".join((f"{self.default_label()}(", *lines, ")"))

    def _printed(self) -> Iterator[tuple[str, str]]:
        """The parameters that matter to users, each with a text; one without a text is left out."""
        described = self._describe()
        counter: Any = getattr(self, "counter", None)
        yield "budget", described.get("budget", "")
        yield "protects", described.get("neighbouring_relation", "")
        if "tick" in described:
            ticks, length, start = (described[name] for name in ("ticks", "tick", "start"))
            span = f"ticks of {length} from {start}"
            yield "clock", f"{span}, {ENDLESS}" if ticks == ENDLESS else f"{ticks} {span}"
        elif "horizon" in described:
            yield "horizon", described["horizon"]
        if "until" in described:
            ended, until = described["ticks_ended"], described["until"]
            yield "bounded input", f"{ended} ticks have ended by {until}, and are released"
        if described.get("late") and getattr(self, "path", "") != "bounded":
            kept = {"fold": "count at the next tick", "drop": "do not count"}[described["late"]]
            yield "late events", f"in a stream they {kept}"
        if "people_shards" in described and "until" not in described:
            yield "people in shards", described["people_shards"]
            yield "in a stream", described.get("closing", "")
        for name in ("what", "views", "counts", "keys", "users", "together"):
            yield name, described.get(name, "")
        if of_columns := described.get("largest_stddev_of_columns"):
            yield "error", f"the largest standard deviation: {of_columns.split(' (')[0]}"
        elif isinstance(counter, Counter):
            largest = f"{math.sqrt(counter.max_variance()):.3g}"
            yield "error", f"{largest}, the largest standard deviation of a release"

    def annotations(self) -> dict[str, bytes | str]:
        described = self._describe().items()
        # Beam takes texts in ASCII only, and a run id may have others.
        texts = ((f"beam_dpcount:{name}", text) for name, text in described)
        return {
            name: text if text.isascii() else text.encode(errors="backslashreplace")
            for name, text in texts
        }

    def display_data(self) -> dict[str, Any]:
        return dict(self._describe())

    def _repr_html_(self) -> str:
        return described(self.default_label(), self._describe())
