"""Whether another tree of this package counts the same: figures, releases and states, to the bit.

    python -m tests.same_bits OTHER

OTHER is a folder with another version of the package, such as a worktree of an earlier commit. Both
count the same events with the same replayable noise, each in a process of its own. It prints what
differs, and how much was compared; the status is 1 if anything differs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

VARIABLE = "COUNTING_SECRET"
HERE = Path(__file__).parent.parent
SECOND = 1_000_000
HORIZON = 12


def counts() -> Iterator[tuple[str, Any, list[Any]]]:
    """A name, a transform, and events as (key, value, seconds), by sentence."""
    import beam_dpcount as dp
    from beam_dpcount import mechanisms

    budgets = {"pure": dp.PureDP(1), "approx": dp.ApproxDP(1, 1e-6), "zcdp": dp.ZCDP(0.5)}
    people = {"one event": None, "people": dp.Users(itemgetter(1), 3, per_key=2)}

    def entropy(name: str) -> Any:
        return dp.ReplayableEntropy(VARIABLE, run_id=name)

    def identified(values: list[Any]) -> list[Any]:
        return [("ab"[i % 3 == 2], (x, f"p{i % 4}", i), i) for i, x in enumerate(values)]

    numbers, letters = [1, 0, 1, 1, 0, 1, 1, 1, 0, 1], list("abcabbacab")
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (0, 1), (1, 3), (0, 3), (1, 2), (0, 2), (0, 1)]
    elements: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "Histogram": (lambda b, **o: dp.Histogram(b, HORIZON, ["a", "b"], **o), letters),
        "SubstringCount": (
            lambda b, **o: dp.SubstringCount(b, HORIZON, ["a", "b"], 2, **o),
            letters,
        ),
        "EpisodeCount": (lambda b, **o: dp.EpisodeCount(b, HORIZON, ["a", "b"], 2, **o), letters),
        "EdgeCount": (lambda b, **o: dp.EdgeCount(b, HORIZON, 4, **o), edges),
        "TriangleCount": (
            lambda b, **o: dp.TriangleCount(b, HORIZON, 4, max_degree=3, **o),
            edges,
        ),
        "CutGraph": (lambda b, **o: dp.CutGraph(b, HORIZON, 4, relation="add_remove", **o), edges),
    }
    for kind in mechanisms.ALL:
        elements[f"PrefixCount {kind.__name__}"] = (
            lambda b, kind=kind, **o: dp.PrefixCount(b, HORIZON, mechanism=kind, **o),
            numbers,
        )
    for (name, (make, values)), (said, budget), path in product(
        elements.items(), budgets.items(), ("bounded", "streaming")
    ):
        whole = f"{name}, {said}, {path}"
        given: dict[str, Any] = {"value": itemgetter(0), "element_id": itemgetter(2)}
        yield (
            whole,
            _made(make, budget, path=path, entropy=entropy(whole), **given),
            identified(values),
        )
    clock = dp.Clock(2, start=0, ticks=6)
    fields = [({"x": x, "who": f"p{i % 4}"}, f"p{i % 4}", i) for i, x in enumerate(numbers)]
    metrics = [dp.Count(), dp.Mean("x", 0, 1), dp.Quantiles("x", 0, 1)]
    things: dict[str, tuple[Any, bool]] = {
        "number": (dp.Sum(low=0, high=1), False),
        "numbers": (metrics, True),
        "people": (dp.People(), False),
        "numbers and people": ([*metrics[:2], dp.People()], True),
    }
    views = {
        "so far": clock,
        "each": clock.each(),
        "last": clock.last(2),
        "restart": clock.restart(3),
        "views": [clock, clock.each()],
    }
    selected = dp.SelectKeys()
    for (thing, (what, reads_fields)), (view, at), (said, budget), (whom, users) in product(
        things.items(), views.items(), budgets.items(), people.items()
    ):
        if users is None and "people" in thing:
            continue
        if thing == "people":
            users = replace(users, per_key=1)
        for keys, path in product((["a", "b"], selected), ("bounded", "streaming")):
            which = "selected" if keys is selected else "listed"
            whole = f"TickCount of {thing}, {view}, {said}, {whom}, {which}, {path}"
            rows = identified(numbers)
            if reads_fields:
                rows = [(key, value, i) for (key, _, i), value in zip(rows, fields, strict=True)]
            given = {"users": users, "keys": keys, "path": path, "entropy": entropy(whole)}
            yield whole, _made(dp.TickCount, budget, at, what, value=itemgetter(0), **given), rows


def _made(make: Callable[..., Any], *arguments: Any, **given: Any) -> Any:
    """The transform; or what it says where it refuses."""
    try:
        return make(*arguments, **given)
    except (ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def figures(counter: Any) -> dict[str, Any]:
    names = ("l1_sensitivity", "l2_sensitivity", "fingerprint")
    found = {name: repr(getattr(counter, name)) for name in names}
    variances = [counter.variance(t).hex() for t in range(1, counter.horizon + 1)]
    return {**found, "variances": variances, "law": repr(counter.law)}


def counted(count: Any, rows: list[Any]) -> dict[str, Any]:
    """What comes of one sentence."""
    import apache_beam as beam
    from apache_beam.transforms.window import TimestampedValue

    if isinstance(count, str):
        return {"refused": count}
    stamp: Any = beam.Map(lambda row: TimestampedValue((row[0], row[1]), 0.5 + row[2]))
    with beam.Pipeline("FnApiRunner") as pipeline:
        events = pipeline | beam.Create(rows, reshuffle=False)
        events = events | stamp.with_output_types(tuple[str, Any])
        _ = events | count | beam.Map(_collect)
    releases, _COLLECTED[:] = sorted(_COLLECTED), []
    states, _STATES[:] = hashlib.sha256(b"".join(sorted(_STATES))).hexdigest(), []
    counters = getattr(count, "counters", None) or {"": count.counter}
    known = {name: figures(counter) for name, counter in counters.items()}
    return {"figures": known, "releases": releases, "states": states}


_COLLECTED: list[str] = []
_STATES: list[bytes] = []


def _collect(release: Any) -> None:
    """By its name: of a function without one, workers get a copy with another list."""
    _COLLECTED.append(_text(release))


def _text(thing: Any) -> str:
    """All of a release, with the bits of its numbers."""
    if isinstance(thing, float):
        return thing.hex()
    if isinstance(thing, list | tuple):
        return f"({', '.join(map(_text, thing))})"
    return _text(thing.tolist()) if hasattr(thing, "tolist") else repr(thing)


def _watched(kind: Any) -> None:
    """Note all bytes that a codec writes."""
    plain = kind.encode

    def encode(self: Any, *args: Any, **more: Any) -> bytes:
        data: bytes = plain(self, *args, **more)
        _STATES.append(hashlib.sha256(data).digest())
        return data

    kind.encode = encode


def write() -> None:
    """A line of JSON a sentence, of the package that is imported."""
    warnings.simplefilter("ignore")
    logging.disable()
    from beam_dpcount.states.codecs import FoldCodec, ShardCodec, StateCodec
    from beam_dpcount.statistics import Episodes, Words

    for known in (Words, Episodes):  # parameters may have other names, and noise depends on them
        setattr(known, "__repr__", lambda self: f"{type(self).__name__}{astuple(self)}")  # noqa: B010

    # But what is remembered of people: it has digests, with a secret of each run.
    for kind in (StateCodec, ShardCodec, FoldCodec):
        _watched(kind)
    for name, count, rows in counts():
        print(json.dumps([name, counted(count, rows)]), flush=True)


def read(tree: Path) -> dict[str, Any]:
    """By sentence, what the package of a tree makes of it."""
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path.append({here!r}); import same_bits; same_bits.write()"
    environment = {**os.environ, VARIABLE: "0123456789abcdef" * 4, "PYTHONPATH": str(tree)}
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(line) for line in ended.stdout.splitlines())


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    """A line for each sentence of which anything differs, with what does."""
    for name in sorted({*ours, *theirs}):
        mine, their = ours.get(name, {}), theirs.get(name, {})
        parts = [part for part in {**mine, **their} if mine.get(part) != their.get(part)]
        if parts:
            yield f"{name}: {', '.join(parts)}"


def main(other: str) -> int:
    ours, theirs = read(HERE), read(Path(other).resolve())
    found = list(differences(ours, theirs))
    print(*found, sep="\n", end="\n" * bool(found))
    refused = sum("refused" in each for each in ours.values())
    releases = sum(len(each.get("releases", ())) for each in ours.values())
    print(
        f"{len(ours)} sentences, {refused} of them refused, {releases} releases: "
        f"{len(found)} differ"
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
