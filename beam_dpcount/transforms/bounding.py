"""How transforms bound each person's events before they count."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpcount.counters.people import Bound, Users
from beam_dpcount.counters.periods import Periods
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.dofns.periods import BoundPeriods
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.dofns.users import SHARDS, BoundArriving, BoundShards, SendToShards
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.states.placement import Placement
from beam_dpcount.transforms.inputs import in_windows, once_per_window


def bounded_events(
    events: PCollection[Any],
    users: Users,
    bound: Bound,
    parcels: Parcels,
    streaming: bool,
    entropy: Entropy,
    output: Any = Any,
    windowing: Any = None,
    by_shard: Any = BoundShards,
    periods: Periods | None = None,
    sends: Any = SendToShards,
    arriving: Any = None,
) -> PCollection[Any]:
    """What parcels give back of the events that count, in the events' windows.

    A person is bounded in the global window, over the whole stream: a bound in each window would
    let each person count anew in every one of them.

    Args:
      events: what the parcels wrap.
      users, bound: whose they are, and how many count.
      parcels: how events travel.
      streaming: whether events are taken as they arrive.
      entropy: has the secret, if there is one, by which people are placed in a stream.
      output: the type of what comes back.
      windowing: windows of what comes back; default: those of the events.
      by_shard: bounds the people of a shard, where they are grouped.
      periods: in each of which the bound holds by itself; None: over the whole stream.
      sends, arriving: in a stream, what sends events to shards, and bounds the people of one.
    """
    is_global = isinstance(events.windowing.windowfn, GlobalWindows)
    placement = Placement(users.shards, entropy) if streaming else Placement(SHARDS)
    sending = (sends if streaming else SendToShards)(users, parcels, placement, streaming)
    send: Any = beam.ParDo(sending)
    sent = events | "SendToPeople" >> send.with_output_types(tuple[int, bytes])
    if streaming:
        in_windows(sent, GlobalWindows())  # it places them there
        shards = beam.Create([(n, SEED) for n in range(placement.shards)], reshuffle=False)
        seeds = events.pipeline | "PeopleShards" >> shards.with_output_types(tuple[int, bytes])
        by_person: Any = (seeds, sent) | "Seeded" >> beam.Flatten()
        rule: tuple[Any, ...] = bound, parcels, placement
        if periods is not None:
            rule, arriving = (*rule, periods), arriving or BoundPeriods
        bounding: beam.DoFn = (arriving or BoundArriving)(*rule)
    else:
        by_person = once_per_window(sent, GlobalWindows()) | "ByPerson" >> beam.GroupByKey()
        bounding = by_shard(bound, parcels, periods=periods)
    left = by_person | "BoundUsers" >> beam.ParDo(bounding).with_output_types(output)
    if windowing is None and is_global:  # as it is; WindowInto costs as much as all the rest
        left._windowing = events.windowing
        return left
    return left | "Windows" >> beam.WindowInto(windowing or events.windowing)
