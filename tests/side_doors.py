"""What is seen of a pipeline from outside, beside the values of its releases."""

from __future__ import annotations

import logging
import re
import warnings
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import metric
from apache_beam.metrics.execution import MetricUpdater

import beam_dpcount as dp
import pipelines
from beam_dpcount.dofns import elements as dofns
from tests.runners import run

SECRET = "s3cr3t"
HOMES = tuple(str(Path(str(module.__file__)).parent) for module in (dp, pipelines))
OURS = ("beam_dpcount", "pipelines")


@pytest.fixture(autouse=True)
def _noted_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric, "MetricUpdater", Updater)


class _Keep(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def listening() -> Iterator[list[logging.LogRecord]]:
    """All records, ours from DEBUG on."""
    keep, root = _Keep(), logging.getLogger()
    levels = {"": logging.DEBUG, "apache_beam": logging.INFO, **dict.fromkeys(OURS, logging.DEBUG)}
    before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    root.addHandler(keep)
    try:
        yield keep.records
    finally:
        root.removeHandler(keep)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


_updates: list[tuple[str, str]] = []


class Updater(MetricUpdater):
    """Notes what it is given: the bundle-based runner loses metrics of its later bundles."""

    def __init__(self, kind: Any, name: Any, *given: Any, **named: Any) -> None:
        super().__init__(kind, name, *given, **named)
        self._made = (kind, name, *given), named

    def __call__(self, *given: Any) -> None:
        _updates.append((str(self._made[0][1]), repr(given)))
        super().__call__(*given)

    def __reduce__(self) -> Any:
        given, named = self._made
        return partial(Updater, **named), given


def is_ours(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] in OURS or record.pathname.startswith(HOMES)


def plain(text: str) -> str:
    """Without what differs from run to run: addresses, and Beam's random names and times."""
    text = re.sub(r"batch_count=.*", "#", text)  # what BatchElements has measured of time
    text = re.sub(r"0x[0-9a-f]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "#", text)
    return re.sub(r"\d+\.\d+ ?(s|sec|seconds|ms)\b", "#", text)


def measured(result: Any) -> dict[tuple[str, ...], str]:
    """All metrics that the pipeline's code has kept, of every kind, with their values."""
    found = {}
    for kind, metrics in result.metrics().query().items():
        for kept in metrics:
            name = kept.key.metric
            value = kept.committed if kept.committed is not None else kept.attempted
            if kind == "gauges":
                value = getattr(value, "value", value)  # it has a time of its own
            found[kind, str(kept.key.step), name.namespace, name.name] = str(value)
    return found


def public(release: Any) -> Any:
    """All of a release but what noise protects."""
    if hasattr(release, "minimiser"):
        return release.clients, release.grid, release.stddev
    shown = release._asdict()
    for name in ("value", "values", "items", "lows", "highs", "notes"):
        shown.pop(name, None)
    return tuple(map(str, shown.items()))


@dataclass(frozen=True)
class Outside:
    """What is seen from outside: of the releases, by the name of their transform."""

    releases: Any
    metrics: Any
    updates: Any
    ours: Any
    others: Any
    warned: Any
    printed: Any

    @property
    def counts(self) -> dict[str, int]:
        """How many releases there are."""
        return dict(Tally(name for (name, _), *_ in self.releases))


def as_in_a_new_worker() -> None:
    """Forgets what a worker says but once, so that each run of a process says it again."""
    dofns.warn_past_horizon.cache_clear()


def outside(
    build: Callable[[beam.Pipeline], dict[str, Any]],
    capfd: pytest.CaptureFixture[str],
    streaming: bool = False,
) -> Outside:
    def flat(pipeline: beam.Pipeline) -> Any:
        made = [
            releases | f"Public {name}" >> beam.Map(lambda r, name=name: (name, public(r)))
            for name, releases in build(pipeline).items()
        ]
        return made | beam.Flatten()

    as_in_a_new_worker()
    capfd.readouterr()
    _updates.clear()
    with listening() as records, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        outcome = run(flat, *(["bundles", ["--streaming"]] if streaming else ["fn"]))
    printed = capfd.readouterr()
    texts = [(record.name, record.levelno, record.getMessage()) for record in records]
    for text in (printed.out, printed.err, *(text for *_, text in texts), *map(str, warned)):
        assert SECRET not in text
    ours = [text for text, record in zip(texts, records, strict=True) if is_ours(record)]
    others = [text for text, record in zip(texts, records, strict=True) if not is_ours(record)]
    return Outside(
        [(seen.value, seen.micros, seen.window) for seen in outcome.outputs[0]],
        measured(outcome.result),
        sorted(_updates),
        ours,
        sorted({(name, level, plain(text)) for name, level, text in others}),
        [str(warning.message) for warning in warned if warning.filename.startswith(HOMES)],
        (plain(printed.out), plain(printed.err)),
    )
