"""Events for shards of people, in bundles, and what comes of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.dofns.parcels import ElementParcels

PAIRS = ElementParcels([SimpleNamespace(wrap=lambda *_: b"")])


def event(key: str, who: str | None, micros: int) -> Any:
    return windowed_value.create((key, {"who": who}), micros, (GlobalWindow(),))


def crowd(chance: random.Random, many: int, people: int = 12) -> list[Any]:
    """Events at times of no order, one person with a third of them, some of nobody."""
    found = []
    for _ in range(many):
        who = chance.choice(["busy", *(f"p{chance.randrange(people)}" for _ in range(2))])
        key = " ".join(sorted({chance.choice("abcd") for _ in range(2)}))
        found.append(event(key, None if chance.random() < 0.1 else who, chance.randrange(1000)))
    return found


def bundles(events: list[Any], most: int, chance: random.Random) -> Iterable[list[Any]]:
    at = 0
    while at < len(events):
        size = chance.randint(1, most)
        yield events[at : at + size]
        at += size


def shown(made: Iterable[Any]) -> list[tuple[Any, int]]:
    return [(each.value, each.timestamp.micros) for each in made]
