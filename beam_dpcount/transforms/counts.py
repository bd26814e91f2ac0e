"""PrefixCount: a private running count per key, after every element."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from beam_dpcount.counters.change import Change, check_bounds, check_unit
from beam_dpcount.statistics.base import Statistic
from beam_dpcount.statistics.numbers import Numbers
from beam_dpcount.transforms.elements import NamedCount


@dataclass(eq=False, repr=False)
class PrefixCount(NamedCount):
    """A private running sum per key, released after every element.

    PCollection[KV[str, number]] -> PCollection[Release], one release per element; with
    on_reject="collect", -> (releases, rejected). On bounded input a key's elements are taken in
    order of event time, ties by `element_id` if given, else as they arrive; on unbounded input, in
    order of arrival.

    Args:
      budget: PureDP, ApproxDP or ZCDP: what all releases of one key may cost together. Or a share
        of a `Ledger`, which is used when the transform is applied, so once.
      horizon: the most elements that any key will have, from 1 to 2^48. The noise grows slowly with
        it. Elements beyond it get no release (see on_reject). None (default) is for streams whose
        length nobody knows: up to 2^30 elements (`mechanisms.Endless`). Release t then has, up to
        t = 10^8, 1.4 to 1.65 times the largest variance of the default with a horizon of just t;
        but under ApproxDP(1, 1e-6) 15.9, 4.0 and 2.1 times for t = 1, 10 and 100 (from 300 on again
        at most 1.6), as Laplace noise is less for few elements: give small keys a horizon. A pure
        budget needs a horizon, or `mechanisms.Unbounded(mechanisms.SmoothLaplace)`.
      mechanism: None (default) is the one whose largest variance is least, as `choose` finds it (on
        the streaming path, of those safe under replays); or a class or name from `mechanisms.ALL`,
        or an instance, with the same horizon if it has one. Where work may be replayed (on the
        streaming path, or with ReplayableEntropy) a class or name that draws noise early runs in a
        form that does not, BridgedKAry as SmoothLaplace, KAry as KAry(subtraction=False), and the
        log names both; an instance is refused. One with momentum or decay releases
        those sums instead of counts (`counter.mechanism.workload`). SquareRoot keeps every step in
        its state: not for long streams.
      bounds: (low, high); values outside are clipped. Default (0, 1).
      unit: values are rounded to multiples of it before they are counted. Default 1: 0.4 counts 0.
        For amounts with decimals give e.g. unit=0.01.
      relation: "replace_one" (default) or "add_remove" neighbours; the same unless low < 0.
      every: release after every so many steps. Default 1. State and noise stay the same.
      on_reject: what happens to elements whose value is not a number. They always take a step, with
        0. "drop" (default): nothing else. "collect": they go to a second output, of Rejected, with
        elements beyond the horizon and elements with a bad key; it is private data. "raise": an
        error stops the pipeline; that it stops is outside the guarantee. Bad keys are an error
        unless collected.
      value, element_id: take the number and a public, unique, sortable id out of an element's
        value, for inputs KV[str, anything]. On bounded input an id that comes twice is refused.
        Where `value` raises an error (as float("abc") does), the element counts as not a number,
        since data can cause it. So does a mistyped field, e["purchse"]: try `value` out with
        `beam_dpcount.check`. MemoryError stops the pipeline. `value` must be a function of the
        event alone (docs/reliability.md, "Poison messages"). The id is public: an error
        in `element_id` stops the pipeline.
      path: "auto" (default) follows `is_bounded` of the input; "streaming" forces the stateful
        path, for sources wrongly declared bounded; "bounded" insists on the grouped one.
      entropy: where the noise comes from; default the operating system. ReplayableEntropy needs
        `element_id`, unique for each element.
      allow_runner: True: accept any runner. Otherwise runners that are known to break the
        guarantee, or not known at all, are refused (docs/engines.md).
      users: Users(by, events): protect the contents of all elements of one person, not only of one.
        At most `events` of them count, `per_key` in a key; the others, and elements without a
        person, count 0 and take their step. Needs a horizon.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for streams that differ in the value of any one element. Public, so not protected: the keys,
      and the number, order and timestamps of the elements. So this transform protects what an
      event's value was, not that it happened. An element lies in one key and one window, so the
      budget is not multiplied by their number. With `users`: all values of one person's elements,
      for all keys and windows together. Who a person's elements are is public then, too, and which
      of them count: the first ones, by time and id on bounded input, of arrival on unbounded input,
      whatever their values: one that counts 0 takes a place, too. What does not count is missing
      from the releases: a bias that no stddev covers. Sensitivity: `counter.l1_sensitivity` and
      `.l2_sensitivity`, of the encoder's columns (docs/proofs/counters.md, "Sensitivity").
      Noise: exact, on integers: discrete Laplace, discrete Gaussian or rounded Gaussian,
      `counter.law`. A runner that retries work draws noise again; what nobody saw costs nothing.

    Attributes:
      counter: the calibrated counter; the one in use, once the transform is applied.

    Raises:
      ValueError, TypeError: at construction, for arguments out of range; when applied, for windows
        that merge or overlap, path="bounded" on unbounded input, instances of mechanisms that draw
        noise early (BridgedKAry, KAry with subtraction) where work may be replayed, a share used
        before, or a refused runner.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("/home", 1), ("/home", 0), ("/home", 1)])
      ...     releases = events | dp.PrefixCount(dp.ApproxDP(1.0, 1e-6), horizon=1000)
      ...     _ = releases | beam.Map(lambda release: print(release.key, release.step))
      /home 1
      /home 2
      /home 3
    """

    horizon: int | None = None
    _: KW_ONLY
    bounds: tuple[float, float] = (0, 1)
    unit: float = 1

    _counts_numbers = True

    def _build(self) -> Statistic:
        change = Change(*check_bounds(self.bounds), relation=self.relation)
        return Numbers(change.low, change.high, check_unit(self.unit, change))
