"""docs/scale.md: every figure is computed from base figures, and those of bytes are the code's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.shards import CountShards
from beam_dpcount.dofns.ticks import SEED, CountEachTick
from beam_dpcount.dofns.users import SHARDS, BoundArriving, SendToShards
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.states.codecs import StateCodec
from beam_dpcount.states.wire import PAIR, pack_batch
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks import plan, stages
from benchmarks.cells import Bag, Cell, PeopleShards, TickShards, Timer
from benchmarks.jobs import dofns_of, order
from benchmarks.plan import Load
from benchmarks.stages import placed

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
TABLES = dict(plan.tables())
BUDGETS = {"SmoothLaplace": dp.PureDP(1.0)}
SPENT = dp.ApproxDP(1.0, 1e-6)
WINDOW = GlobalWindow()


def shown(name: str) -> list[tuple[str, ...]]:
    """A table of the page."""
    (block,) = re.findall(rf"<!-- plan: {name} -->\n(.*?)\n<!-- /plan -->", PAGE, re.DOTALL)
    lines = [line for line in block.splitlines() if not line.startswith("|---")]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]


# The page


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_computed(name: str) -> None:
    """To renew them: python -m benchmarks.plan."""
    for said, made in zip(shown(name), TABLES[name], strict=True):
        assert said == made


def test_the_page_has_each_table_once() -> None:
    assert sorted(re.findall(r"<!-- plan: ([^>]*) -->", PAGE)) == sorted(TABLES)


def test_figures_in_sentences() -> None:
    assert f"are {Load().events / plan.DAY:,.0f} a second" in PAGE
    assert f"a Python worker of {plan.WORKER} MB" in PAGE
    assert f"{plan.ENVELOPE} bytes are head and checksum" in PAGE
    waits = f"add {plan.PENDING} bytes a key while a sum waits, in a shard {plan.SUM} and the name"
    assert waits in PAGE
    assert f"travel\nin {plan.PEOPLE_SHARDS} groups" in PAGE
    for seconds in plan.SOAKS.values():
        assert "# " + ", ".join(f"{one:.0f} s" for one in seconds) in PAGE


def test_the_page_is_linked() -> None:
    for page, link in (("README.md", "(docs/scale.md)"), ("docs/engines.md", "(scale.md)")):
        assert link in (ROOT / page).read_text(encoding="utf-8")


def test_the_command_prints_all_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main([]) == 0
    printed = capsys.readouterr().out
    for name in plan.TABLES:
        assert plan.markdown(TABLES[name]) in printed
    assert plan.main(["--keys", "100", "--ticks", "24", "--bundle", "50", "--hot", "0.25"]) == 0
    other = plan.markdown(plan.day(Load(keys=100, ticks=24, bundle=50, hot=0.25)))
    assert other in capsys.readouterr().out
    assert other not in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--keys", "0"], "all numbers but --hot must be 1 or more"),
        (["--hot", "2"], "--hot must be from 0 to 1, got 2"),
        (["--ticks", "3000000"], "--ticks must be at most 2,941,758 a day, got 3,000,000"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        plan.main(words)
    assert said in capsys.readouterr().err


# The arithmetic, by hand

HAND = Load(events=10**6, keys=100, people=1000, ticks=10, bundle=1, shards=4, counted=2)


def test_keys_of_a_bundle_are_expected_ones() -> None:
    """Of 3 keys and 2 events: a third of the time both have one key."""
    assert plan.met(3, 2) == pytest.approx(5 / 3)
    assert plan.met(1, 5) == 1
    assert plan.met(5, 1) == 1
    assert plan.met(10**6, 1000) == pytest.approx(999.5, abs=0.01)
    chance = np.random.default_rng(1)
    drawn = [len(set(chance.integers(0, 50, 80).tolist())) for _ in range(2000)]
    assert plan.met(50, 80) == pytest.approx(np.mean(drawn), rel=0.01)


def test_visits_of_a_hot_key_are_one_a_bundle() -> None:
    assert HAND.visits == 10**6
    load = replace(HAND, bundle=100, hot=0.98)  # two other events, nearly always of two keys
    assert load.bundles == 10**4
    assert load.visits == pytest.approx(10**4 * (1 + plan.met(99, 2)))
    assert replace(HAND, keys=1, bundle=100, hot=1.0).visits == 10**4


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Base figures that are all different, so that each term shows."""
    for place, what in enumerate(plan.STAGES):
        monkeypatch.setitem(plan.STAGES, what, 2.0**place)
    monkeypatch.setattr(plan, "VISIT", 1e6)
    monkeypatch.setattr(plan, "ENTER", 1e7)


def bits(*names: str) -> float:
    return sum(2.0 ** [*plan.STAGES].index(name) for name in names)


@pytest.mark.usefixtures("base")
def test_the_cost_of_each_count_by_hand() -> None:
    """10^6 events, one a bundle, so that a figure in us is that of one event."""
    found = plan.cost("plain stateful count", HAND)
    assert (found.events, found.visits) == (1e7, 1e6 + bits("plain count: a key and bundle"))
    found = plan.cost("PrefixCount", HAND)
    assert found.events == 1e7 + bits("GatherNumbers: an event")
    assert found.visits == 1e6 + bits("CountGathered: a key and bundle")
    found = plan.cost("Histogram of 10 items", HAND)
    assert found.visits == 1e6 + bits("Histogram of 10 items: a key and bundle")
    found = plan.cost("TickCount, listed keys", HAND)
    assert found.events == 1e7 + bits("ReadTicks: an event")
    assert found.visits == 1e6
    due = bits("CountEachTick: a sum")
    each = 1e-3 * (1e7 + bits("CountEachTick: a key and tick"))  # 1000 of them
    assert found.releases == pytest.approx(due + each + 10e-6 * 1e6)  # a shard, 10 ticks
    found = plan.cost("TickCount, SelectKeys", HAND)
    assert found.events == 1e7 + bits("SumShards: an event")
    assert found.visits == 1e6
    due = bits("CountShards: a sum that is due")
    tested = 1e-3 * bits("CountShards: a key and tick")
    assert found.releases == pytest.approx(due + tested + 40e-6 * 1e6)  # 4 shards, 10 ticks


@pytest.mark.usefixtures("base")
def test_further_events_of_a_bundle_are_steps() -> None:
    load = replace(HAND, keys=1, bundle=100)
    for count, step in (
        ("plain stateful count", "plain count: an event"),
        ("PrefixCount", "CountGathered: a step"),
        ("Histogram of 10 items", "Histogram of 10 items: a step"),
    ):
        one, many = plan.cost(count, HAND), plan.cost(count, load)
        assert many.events - one.events == pytest.approx(0.99 * bits(step))
        assert many.visits == pytest.approx(0.01 * one.visits)
    found = plan.cost("TickCount, SelectKeys", replace(HAND, bundle=100))
    assert found.visits == 0.04 * 1e6  # 4 shards a bundle
    few = plan.cost("TickCount, SelectKeys", replace(HAND, keys=2, bundle=100))
    assert few.visits == pytest.approx(0.02 * 1e6)  # of two keys


@pytest.mark.usefixtures("base")
def test_people_come_before_a_count() -> None:
    """2 events of 1000 people count: 2000 of 10^6, so that a bundle of one passes on 0.002."""
    passed = HAND.passed
    assert (passed.events, passed.bundles) == (2000, pytest.approx(10**6))
    assert replace(HAND, people=10**6).passed.events == 10**6
    found = plan.people(HAND)
    counts = 2e-3 * bits("BoundArriving: an event that counts")
    counts += (1 - 2e-3) * bits("BoundArriving: an event that does not")
    assert found.events == pytest.approx(1e7 + bits("SendToShards: an event") + counts)
    read = 1000 * HAND.counted / 64 * bits("BoundArriving: a row that is read")
    assert found.visits == pytest.approx(1e6 + read)
    ticks = plan.cost("TickCount, listed keys", HAND, users=True)
    assert ticks == found + plan.cost("TickCount, listed keys", passed)
    steps = plan.cost("PrefixCount", HAND, users=True)  # those that do not count take steps
    assert steps == found + plan.cost("PrefixCount", HAND)


def test_cores_are_half_busy() -> None:
    assert plan.Cost(plan.DAY, plan.DAY / 4, plan.DAY / 4).cores == 3
    assert plan.Cost(plan.DAY, plan.DAY / 4, plan.DAY / 4 + 1).cores == 4


@pytest.mark.usefixtures("base")
def test_the_hottest_key_by_hand() -> None:
    first, step = bits("CountGathered: a key and bundle"), bits("CountGathered: a step")
    assert plan.hottest("PrefixCount", 10) == 10 / (1e6 + first + 9 * step) * 1e6
    sum_ = bits("CountEachTick: a sum")
    assert plan.hottest("TickCount, listed keys", 10) == 10 / (1e6 + sum_) * 1e6
    not_ = bits("BoundArriving: an event that does not")
    assert plan.hottest_person(10) == 10 / (1e6 + 10 * not_) * 1e6


def test_states_by_hand() -> None:
    load = replace(HAND, ticks=1000)  # 365,000 a year
    assert plan.states("PrefixCount", load) == (100, 100 * (28 + 164))
    assert plan.states("Histogram of 10 items", load) == (100, 100 * (28 + 1640))
    assert plan.states("TickCount, listed keys", load) == (1, 100 * (149 + 16) + 28 + 32)
    waiting = 10**6 / 1000 * 32
    shards = 100 * (5 + 12 + 149) + 4 * 44 + waiting
    assert plan.states("TickCount, SelectKeys", load) == (4, shards)
    assert plan.persons(load) == 1000 * 2 * 33 + 64 * 84


def test_visits_and_events_are_those_of_the_soaks() -> None:
    """To two digits."""
    event, visit = (float(f"{us:.2g}") for us in plan.soaked())
    assert list(plan.ENGINE.values()) == [event, visit] == [plan.ENTER, plan.VISIT]


def test_visits_of_the_skewed_soaks_are_counted() -> None:
    """Of events in their order: each key's in one of two files, each in bundles of its own."""
    events, keys = 100_000, 5000
    visits, bundle = 0, events // 40
    files: list[list[int]] = [[], []]
    for key in order(events, keys, skewed=True):
        files[key % 2].append(key)
    for file in files:
        starts = range(0, len(file), bundle)
        visits += sum(len(set(file[start : start + bundle])) for start in starts)
    assert plan.skewed_visits(events) == pytest.approx(visits, rel=0.1)


@pytest.mark.long
def test_stages_are_those_that_the_command_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "HORIZON", 1000)
    monkeypatch.setattr(stages, "TESTED", 50)
    monkeypatch.setattr(stages, "KEYS", 5)
    monkeypatch.setattr(stages, "BUNDLE", 20)
    assert list(stages.measured(1)) == list(plan.STAGES)


# Bytes and timers, as the code has them


@pytest.mark.parametrize("horizon", plan.HORIZONS)
@pytest.mark.parametrize("mechanism", plan.NUMBERS)
def test_numbers_of_a_stream(mechanism: str, horizon: int) -> None:
    """The most that it keeps; where states grow, `state_size` says how many, of 8 bytes each."""
    budget, at = BUDGETS.get(mechanism, SPENT), plan.HORIZONS.index(horizon)
    counts: Any = (
        dp.PrefixCount(budget, horizon, mechanism=mechanism, path="streaming"),
        ticks(["a"], horizon, budget, mechanism=mechanism),
    )
    for numbers, count in zip(plan.NUMBERS[mechanism], counts, strict=True):
        counter = count.counter
        codec, noise = StateCodec(counter), SystemNoise(counter.law, None)
        state, most = counter.init(), 0
        for _ in range(horizon if horizon < 2000 else 10):
            state, _ = counter.step_lattice(state, 1, noise)
            most = max(most, len(codec.encode(state)) - plan.ENVELOPE)
        if isinstance(state[-1], bytes):
            assert numbers[at] == most
        else:
            assert numbers[at] == 8 * (counter.state_size - 1)
            assert most == numbers[at] if horizon < 2000 else most <= numbers[at]


@pytest.mark.long
def test_the_default_is_what_transforms_take() -> None:
    for horizon in plan.HORIZONS:
        count: Any = dp.PrefixCount(SPENT, horizon, path="streaming")
        clock: Any = ticks(["a"], horizon)
        assert count.counter.mechanism.name == clock.counter.mechanism.name == plan.DEFAULT


def ticks(keys: Any, horizon: int, budget: Any = SPENT, **how: Any) -> TickNumbers:
    return TickNumbers(budget, 60, 0, horizon=horizon, keys=keys, path="streaming", **how)


class Timers(Timer):
    """Counts how often it is set."""

    times = 0

    def set(self, moment: Any) -> None:
        super().set(moment)
        self.times += 1


def seeded(dofn: Any) -> tuple[Any, Any, Any]:
    """The cell, timer and bag of a shard of unlisted keys that a seed has started."""
    dofn.setup()
    cell, timer, bag = Cell(), Timers(), Bag()
    dofn.process((0, SEED), bag, cell, timer)
    return cell, timer, bag


@pytest.mark.parametrize("horizon", plan.HORIZONS)
def test_the_state_of_a_key(horizon: int) -> None:
    for count, transform in (
        ("PrefixCount", dp.PrefixCount(SPENT, horizon, path="streaming")),
        ("Histogram of 10 items", dp.Histogram(SPENT, horizon, [*"0123456789"], path="streaming")),
    ):
        found = dofns_of(transform)
        (dofn,) = (one for one in found.values() if isinstance(one, CountEachElement))
        dofn.setup()
        numeric, cell = count == "PrefixCount", Cell()
        element = placed(("key", PAIR.pack(1, 1) if numeric else "1"))
        assert len([*dofn.process(element.value, element, cell)]) == 1
        assert len(cell.data or b"") == plan.state(count, horizon)
        assert plan.timers(count, Load()) == 0


@pytest.mark.parametrize("horizon", [most for most in plan.HORIZONS if most < 2**30])
def test_the_state_and_the_timer_of_listed_keys(horizon: int) -> None:
    (one, many), size = (
        (
            TickShards(dofns_of(ticks([f"{i}" for i in range(keys)], horizon))[CountEachTick])
            for keys in (1, 2)
        ),
        plan.state("TickCount, listed keys", horizon),
    )
    one.seed()
    many.seed()
    alone, both = (len(shard.cells[0].data or b"") for shard in (one, many))
    assert alone == plan.ENVELOPE + size
    assert both - alone <= size  # what all keys have in common is there once
    first = one.timers[0].at
    for tick in range(1, 4):
        one.take((0, PAIR.pack(tick, 1)))
    assert (len(one.cells[0].data or b""), one.timers[0].at) == (alone, first)  # events set none
    assert len(one.release()) == 1
    assert len(one.cells[0].data or b"") == alone + plan.QUEUE + 2 * plan.PENDING
    assert one.timers[0].at == 2 * (first or 0)
    assert plan.timers("TickCount, listed keys", Load()) == Load().listed_shards == 64
    names = [f"{i}" for i in range(3000)]
    assert dofns_of(ticks(names, horizon))[CountEachTick]._plan.shards == 3
    assert replace(Load(), keys=3000).listed_shards == 3


@pytest.mark.long
@pytest.mark.parametrize("horizon", [most for most in plan.HORIZONS if most < 2**30])
def test_the_state_and_the_timer_of_a_shard(horizon: int) -> None:
    dofn = dofns_of(ticks(dp.SelectKeys(at_least=3), horizon))[CountShards]
    cell, timer, bag = seeded(dofn)
    alone = plan.ENVELOPE + plan.SHARD
    assert len(cell.data or b"") == alone

    def arrive(sums: dict[tuple[str, int], int]) -> int:
        batch = 0, pack_batch(sums)
        dofn.process(batch, bag, cell, timer)
        for _ in dofn.release(0, WINDOW, bag, cell, timer, Bag()):
            pass
        return len(cell.data or b"")

    name = Load().name
    key = plan.state("TickCount, SelectKeys", horizon, name)
    names = [f"{place:0{name}}" for place in range(5)]
    assert arrive({(names[0], 1): 9, (names[1], 1): 9}) == alone + 2 * key
    assert arrive({(names[2], 2): 1}) == alone + 2 * key + plan.WAITING + name
    sums = {(each, 3): 1 for each in names}
    assert len(pack_batch(sums)) - len(pack_batch({(names[0], 3): 1})) == 4 * (plan.SUM + name)
    assert timer.times == 3  # the seed, and one in place of each that fired
    assert plan.timers("TickCount, SelectKeys", Load()) == Load().shards == dp.SelectKeys().shards


@pytest.mark.parametrize("gap", [None, 60])
def test_the_state_of_people(gap: int | None) -> None:
    users = dp.Users(lambda _: "person", events=4, gap=gap, per_key=1)
    transform = ticks([*"abcd"], 1440, users=users, value=lambda _: 1, late="drop")
    found = dofns_of(transform)
    shards = PeopleShards(found[SendToShards], found[BoundArriving])
    row = plan.ROW + plan.ROW_TIME * (gap is not None)
    for n, key in enumerate("abcd", 1):
        event = placed((key, "person"), n * 60_000_000)
        assert len(shards.bundle([event])) == 1
        assert shards.size == plan.PEOPLE_CELL + n * (plan.PEOPLE_PIECE + row)
    assert found[BoundArriving]._placement.shards == Load().people_shards // 8 == 64


def test_a_clock_has_one_timer_a_shard_on_unbounded_input() -> None:
    """And no more: those that fire all at once are of bounded input."""
    made: list[int] = []

    class Look(beam.pipeline.PipelineVisitor):
        def visit_transform(self, node: Any) -> None:
            fn = getattr(node.transform, "fn", None)
            if isinstance(fn, CountEachTick):
                made.append(fn._plan.ahead)

    pipeline = beam.Pipeline(runner="FnApiRunner")
    events: Any = pipeline | PeriodicImpulse(0, 1, 1)
    _ = events | beam.Map(lambda _: ("a", 1)) | ticks(["a"], 10)
    pipeline.visit(Look())
    assert made == [1]


def test_people_travel_in_so_many_shards() -> None:
    assert plan.PEOPLE_SHARDS == SHARDS


def test_mutants_of_a_base_figure_change_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each base figure is in some table beside the one that lists it."""
    before = {name: rows for name, rows in plan.tables() if name not in ("measured", "kept")}
    changes: list[Callable[[], None]] = [
        lambda what=what: monkeypatch.setitem(plan.STAGES, what, 1e4)  # type: ignore[misc]
        for what in plan.STAGES
    ]
    changes += [
        lambda name=name: monkeypatch.setattr(plan, name, 10**4)  # type: ignore[misc]
        for name in ("VISIT", "ENTER", "ENVELOPE", "SHARD", "BESIDE", "NAMED", "ROW", "WORKER")
    ]
    for change in changes:
        change()
        after = {name: rows for name, rows in plan.tables() if name in before}
        assert after != before
        monkeypatch.undo()
