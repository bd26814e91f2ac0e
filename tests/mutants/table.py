"""The mutants, as data: what each changes, which promise that breaks, and which check tells.

To add one, write it here: `old` must be in its file exactly once, `check` is the one that a
maintainer would name, and is quick. `python -m tests.mutants NAME` tries it out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A change of the code that breaks a promise.

    Fields:
      kind: what is done to the code, or to what, in a word or two.
      name: what is wrong with it; no other has it.
      file: from the top of the checkout.
      old, new: a piece of its text, which is there once, and what takes its place.
      check: the test that must notice, as pytest names it.
      twin: whether the compiled twin of the recurrences is there; it hides what is wrong in Python.
    """

    kind: str
    name: str
    file: str
    old: str
    new: str
    check: str
    twin: bool = True

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")


_NOISE = "beam_dpcount/noise"
_BUDGET = "beam_dpcount/budget"
_MECHANISMS = "beam_dpcount/mechanisms"
_COUNTERS = "beam_dpcount/counters"
_STATISTICS = "beam_dpcount/statistics"
_STATES = "beam_dpcount/states"
_DOFNS = "beam_dpcount/dofns"
_TRANSFORMS = "beam_dpcount/transforms"
_COMMANDS = "beam_dpcount/commands"

_AUDIT = "tests/test_audit.py::test_bit_streams_keep_the_budget"
_NORMS = "tests/test_contract.py::test_sensitivity_is_the_largest_column_norm_of_the_encoder"
_STEPS = (
    "tests/test_contract.py::test_steps_and_release_agree_and_draw_each_coordinate_once_in_order"
)

MUTANTS = (
    # Ticks that have not ended
    Mutant(
        "a tick to come",
        "rows of ticks that have not ended are read, and take people's places",
        f"{_COUNTERS}/grid.py",
        "            return step if step <= ended else 0",
        "            return min(step, ended)",
        "tests/test_until.py::test_rows_of_other_ticks_leave_no_trace",
    ),
    Mutant(
        "a tick to come",
        "noise depends on until, so that a later run draws anew for ticks that were released",
        f"{_DOFNS}/ticks.py",
        "counter, counted = self.counter, (path, (self.fold, self.counted))",
        "counter, counted = self.counter, (path, (self.fold, self.counted, self.until))",
        "tests/test_until.py::test_ticks_that_have_ended_are_released_as_ever",
    ),
    Mutant(
        "a tick to come",
        "noise of keys that nobody listed depends on until",
        f"{_DOFNS}/shards.py",
        "return ascii((fingerprint, self.shards, self.cap, self.fold, self.counted))",
        "return ascii((fingerprint, self.shards, self.cap, self.fold, self.counted, self.until))",
        "tests/test_until.py::test_noise_of_keys_that_nobody_listed_does_not_know_until",
    ),
    Mutant(
        "a tick to come",
        "a time later than now is taken",
        f"{_COUNTERS}/clock.py",
        "    if micros > present:",
        "    if micros > present + 10**18:",
        "tests/test_until.py::test_a_time_later_than_now_is_refused",
    ),
    Mutant(
        "a side door",
        "how far a clock is shows only where there were events",
        f"{_TRANSFORMS}/ticks.py",
        '        both = (seed, sums) | "Flatten" >> beam.Flatten()',
        "        both = sums",
        "tests/test_horizon.py::test_how_far_the_clock_is_shows_whatever_the_events",
    ),
    # Too little noise
    Mutant(
        "a rounding",
        "products of columns far apart lose what 1 - a rounds",
        f"{_MECHANISMS}/profiled_tables.py",
        "product = powers(p.a, d) @ parts",
        "product = (1 - p.a) ** d @ parts",
        "tests/test_lags.py::"
        "test_the_first_and_the_last_column_of_long_weighted_rows_in_fifty_digits",
    ),
    Mutant(
        "a rounding",
        "an epsilon that is shown is the nearest float",
        f"{_BUDGET}/costs.py",
        "min(float_up(self.epsilon),",
        "min(float(self.epsilon),",
        "tests/test_proofs.py::test_costs_are_rounded_up",
    ),
    Mutant(
        "half the noise",
        "Laplace noise of half its scale",
        f"{_BUDGET}/budgets.py",
        "Fraction(l1) / Fraction(budget.epsilon)",
        "Fraction(l1) / Fraction(2 * budget.epsilon)",
        f"{_AUDIT}[replace_one-epsilon = 1 (pure)-BinaryTree]",
    ),
    Mutant(
        "half the noise",
        "half the variance for a rho",
        f"{_BUDGET}/budgets.py",
        "Fraction(l2_squared) / (2 * rho)",
        "Fraction(l2_squared) / (4 * rho)",
        f"{_AUDIT}[replace_one-rho = 0.5 (zCDP)-SmoothBinary]",
    ),
    Mutant(
        "half the noise",
        "an analytic Gaussian of half its variance",
        f"{_BUDGET}/budgets.py",
        "l2_squared * sigma**2)",
        "l2_squared * sigma**2 / 2)",
        f"{_AUDIT}[replace_one-epsilon = 1, delta = 1e-06-SmoothBinary]",
    ),
    Mutant(
        "half the noise",
        "draws of another scale than the law says",
        f"{_NOISE}/laws.py",
        "        if self.parameter <= _TABLE_SCALE:\n"
        "            return inverse_table(self).sample(n, random_bytes)",
        "        if self.parameter <= _TABLE_SCALE:\n"
        "            return inverse_table(DiscreteLaplace(self.parameter / 2)).sample(\n"
        "                n, random_bytes\n"
        "            )",
        "tests/test_laws.py::test_samples_follow_the_law_and_no_other[DiscreteLaplace-2.33333]",
    ),
    Mutant(
        "half the noise",
        "the low digits of large Laplace draws are not drawn",
        f"{_NOISE}/laws.py",
        "return high * _DIGIT + low[:n] - low[n:]",
        "return high * _DIGIT + low[:n] - low[:n]",
        "tests/test_laws.py::test_every_digit_of_a_large_draw_is_right[DiscreteLaplace-1.04858e+06]",
    ),
    Mutant(
        "half the noise",
        "Gaussian proposals that floats do not decide are all kept",
        f"{_NOISE}/tables.py",
        "        if v << 8 >= high + 2:\n            return False\n",
        "        if v << 8 >= high + 2:\n            return True\n",
        "tests/test_laws.py::test_a_draw_is_kept_exactly_below_its_probability",
    ),
    Mutant(
        "half the noise",
        "a key that ends an epoch of an endless count has a total without noise",
        f"{_COUNTERS}/unbounded.py",
        "closed = closed + epoch_sum + noise.for_law(self.law).one(drawn)",
        "closed = closed + epoch_sum",
        "tests/test_unbounded.py::test_steps_and_releases_are_decoded_sums_and_draw_in_order",
    ),
    Mutant(
        "half the noise",
        "what a row is noised for reaches its release without the noise",
        f"{_MECHANISMS}/simple.py",
        "        total = state[1] + x\n        return (t, total), total + noise.one(t)",
        "        total = state[1] + x\n        return (t, total), total + noise.one(t) * (t > 1)",
        "tests/test_contract.py::test_each_noise_reaches_scalar_releases_with_the_decoders_weights"
        "[Simple1]",
    ),
    # Noise drawn again for one coordinate
    Mutant(
        "fresh noise",
        "live nodes are noised anew in each release",
        f"{_MECHANISMS}/binary.py",
        "return (t, total, *kept, z), total + sum(kept) + z",
        "return (t, total, *kept, z), total + sum(noise.one(t) for _ in kept) + z",
        f"{_STEPS}[scalar-BinaryTree]",
    ),
    Mutant(
        "fresh noise",
        "the sum of all noises is drawn anew at each step",
        f"{_MECHANISMS}/simple.py",
        "total, noises = state[1] + x, state[2] + noise.one(t)",
        "total, noises = state[1] + x, noise.draw(1, t).sum()",
        f"{_STEPS}[scalar-Simple2]",
    ),
    Mutant(
        "shared noise",
        "keys of a shard that begin together share the noise of what came before",
        f"{_COUNTERS}/columns.py",
        "mechanism.after(step - 1, noise(new), len(new))",
        "mechanism.after(step - 1, noise(new[:1] * len(new)), len(new))",
        "tests/test_columns.py::test_keys_side_by_side_are_keys_tick_by_tick[1-1-BinaryTree]",
    ),
    # One noise for two
    Mutant(
        "shared noise",
        "a pool hands out a draw twice",
        f"{_NOISE}/entropy.py",
        "return self._pool.pop()",
        "return self._pool[-1]",
        "tests/test_noise.py::test_no_way_to_draw_shares_a_draw_with_another",
    ),
    Mutant(
        "shared noise",
        "the keys of a shard have one noise",
        f"{_NOISE}/entropy.py",
        "[self._noise.one(coordinate) for _ in range(self._dimension)], dtype=np.int64",
        "[self._noise.one(coordinate)] * self._dimension, dtype=np.int64",
        "tests/test_noise.py::test_no_way_to_draw_shares_a_draw_with_another",
    ),
    Mutant(
        "shared noise",
        "a forked child has the samples of its parent",
        f"{_NOISE}/entropy.py",
        "    for noise in list(_live):\n        noise._pool.clear()",
        "    for noise in list(_live):\n        noise._pool.copy()",
        "tests/test_noise.py::test_a_forked_child_inherits_no_samples[None]",
    ),
    Mutant(
        "shared noise",
        "samples travel in pickles",
        f"{_NOISE}/entropy.py",
        "    def __reduce__(self) -> tuple[type[SystemNoise], tuple[Law, int | None]]:",
        "    def _reduced(self) -> tuple[type[SystemNoise], tuple[Law, int | None]]:",
        "tests/test_noise.py::test_a_pickle_holds_no_samples",
    ),
    Mutant(
        "shared noise",
        "a second block of expanded bytes is the first again",
        f"{_NOISE}/replay.py",
        'block = self._blocks.to_bytes(8, "little")',
        'block = (0).to_bytes(8, "little")',
        "tests/test_replay.py::test_a_vector_that_takes_many_blocks_has_no_coordinate_twice",
    ),
    Mutant(
        "shared noise",
        "streams that are released side by side have the noise of the first",
        f"{_DOFNS}/stacked.py",
        "noises = [noise_of(streams[i]) for i in some.tolist()]",
        "noises = [noise_of(streams[some[0]]) for i in some.tolist()]",
        "tests/test_stacked.py::test_each_comes_out_as_it_would_alone",
    ),
    # Norms
    Mutant(
        "heights",
        "a tree is a level lower at powers of two",
        f"{_MECHANISMS}/binary.py",
        "    def l1_sensitivity(self) -> int:\n        return self.horizon.bit_length()",
        "    def l1_sensitivity(self) -> int:\n"
        "        return max(self.horizon - 1, 1).bit_length()",
        f"{_NORMS}[BinaryTree]",
    ),
    Mutant(
        "heights",
        "leaves of a smooth tree have a zero less",
        f"{_MECHANISMS}/smooth.py",
        "        return self.shape[1]\n",
        "        return max(1, self.shape[1] - 1)\n",
        f"{_NORMS}[SmoothBinary]",
    ),
    Mutant(
        "heights",
        "levels of a k-ary tree that only just have a block are not counted",
        f"{_MECHANISMS}/kary.py",
        "if w - shift <= self.horizon]",
        "if w - shift < self.horizon]",
        f"{_NORMS}[KAry]",
    ),
    Mutant(
        "heights",
        "the top level of a bridged tree is free",
        f"{_MECHANISMS}/bridged.py",
        "        return len(self._tree.spans)\n",
        "        return max(1, len(self._tree.spans) - 1)\n",
        f"{_NORMS}[BridgedKAry]",
    ),
    Mutant(
        "norms a hair small",
        "the norm of a column is not rounded up",
        f"{_MECHANISMS}/square_root.py",
        "float((self._r**2).sum()) * (1 + 1e-9)",
        "float((self._r**2).sum()) * (1 - 1e-9)",
        f"{_NORMS}[SquareRoot]",
    ),
    Mutant(
        "norms a hair small",
        "what rounding an encoder's rows adds is forgotten",
        f"{_MECHANISMS}/rounded.py",
        "return per_row * self.horizon, per_row * math.sqrt(self.horizon)",
        "return 0.0, 0.0",
        "tests/test_contract.py::test_what_rounding_adds_to_the_sensitivity_is_small_and_counted"
        "[1-SquareRoot]",
    ),
    Mutant(
        "norms a hair small",
        "norms are rounded down",
        f"{_MECHANISMS}/rounded.py",
        "math.ldexp(math.ceil(math.ldexp(fraction, 28)), exponent - 28)",
        "math.ldexp(math.floor(math.ldexp(fraction, 28)), exponent - 28)",
        "tests/test_rounded.py::test_round_up_is_never_below_and_little_above",
    ),
    Mutant(
        "norms a hair small",
        "scales of columns are rounded up, which makes columns longer than 1",
        f"{_MECHANISMS}/blt_tables.py",
        "[(below << fraction) // above for above, below in ratios]",
        "[-((-below << fraction) // above) for above, below in ratios]",
        "tests/test_blt.py::test_scales_are_no_smaller_than_the_columns_exactly",
    ),
    Mutant(
        "norms a hair small",
        "a rho is rounded up",
        f"{_BUDGET}/conversions.py",
        "    return low * (1 - MARGIN)\n",
        "    return low * (1 + 1e4 * MARGIN)\n",
        "tests/test_budget.py::test_rho_is_safe_and_largest",
    ),
    # What others have published, and what is easily thought
    Mutant(
        "published constants",
        "the exponent of a Renyi divergence is one off",
        f"{_BUDGET}/conversions.py",
        "x * x * rho, -x * math.log1p(1 / x), -math.log1p(x)",
        "x * x * rho, -(x + 1) * math.log1p(1 / x), -math.log1p(x)",
        "tests/test_budget.py::test_delta_is_never_below_the_exact_one_and_close_to_it[1e-06]",
    ),
    Mutant(
        "published constants",
        "the Gaussian of sqrt(2 ln(1.25 / delta)) whatever epsilon is",
        f"{_BUDGET}/conversions.py",
        "    return math.nextafter(1 / low, math.inf)\n",
        "    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon\n",
        "tests/test_budget.py::test_gaussian_noise_of_a_budget_keeps_it",
    ),
    Mutant(
        "published constants",
        "the norm of a graph's change is taken for that of its image",
        f"{_STATISTICS}/graph_change.py",
        "column * steps + apart * (whole - steps)",
        "column * steps",
        "tests/test_graph_statistics.py::test_no_order_of_four_vertices_exceeds_the_bounds",
    ),
    Mutant(
        "published constants",
        "one pair moves as many triangles as its ends have neighbours",
        f"{_STATISTICS}/graph_counts.py",
        "return ((most, 2 * most),), most**2 + max(2 * most**2, 4 * most)",
        "return ((most, 0),), None",
        "tests/test_graph_statistics.py::test_bounds_of_triangles_are_attained[3]",
    ),
    Mutant(
        "published constants",
        "words of a stream are taken for words that do not overlap",
        f"{_STATISTICS}/words.py",
        "Spread(blocks, blocks * g[0] + cross, touched)",
        "Spread(blocks, blocks * g[0], touched)",
        "tests/test_words.py::test_no_neighbours_differ_by_more[2-7-3-replace_one]",
    ),
    Mutant(
        "published constants",
        "an old and a new letter are taken for one",
        f"{_STATISTICS}/words.py",
        'return 2 if self.relation == "replace_one" and self.letters > 1 else 1',
        "return 1",
        "tests/test_words.py::test_no_neighbours_differ_by_more[2-7-2-replace_one]",
    ),
    Mutant(
        "published constants",
        "an episode is taken to change at one step",
        f"{_STATISTICS}/episodes.py",
        "squares = reach.squares if mechanism.is_nonnegative else reach.l1_squares",
        "squares = reach.touched",
        "tests/test_episodes.py::test_no_neighbours_are_further_apart_through_an_encoder"
        "[ab-3-8-None-replace_one]",
    ),
    Mutant(
        "published constants",
        "items of two elements are taken for those of one",
        f"{_COUNTERS}/change.py",
        "touched = min(2 * b, dimension or 1)",
        "touched = min(b, dimension or 1)",
        "tests/test_histograms.py::test_norms_are_what_all_pairs_of_neighbours_reach",
    ),
    Mutant(
        "published constants",
        "a client's message is one column, not the difference of two",
        "beam_dpcount/local/learner.py",
        "largest = float(max(squares.max(), (squares[:, None] + squares - 2 * gram).max()))",
        "largest = float(squares.max())",
        "tests/test_local.py::test_norms_are_what_all_pairs_of_clients_reach",
    ),
    # Bounds on values
    Mutant(
        "clipping",
        "numbers beyond the bounds are counted as they are",
        f"{_COUNTERS}/lattice.py",
        "return low if x < low else high if x > high else x",
        "return x",
        "tests/test_counter.py::test_values_beyond_the_bounds_are_clipped_however_large",
    ),
    Mutant(
        "clipping",
        "whole numbers of a stream are counted as they are",
        f"{_COUNTERS}/lattice.py",
        "np.asarray(np.clip(array, *self.bounds), dtype=np.int64)",
        "np.asarray(array, dtype=np.int64)",
        "tests/test_counter.py::test_single_values_and_whole_streams_are_rounded_alike",
    ),
    Mutant(
        "clipping",
        "0, which refused elements count, is not among the values",
        f"{_COUNTERS}/change.py",
        "return max(high, 0) - min(low, 0)",
        "return high - low",
        "tests/test_audit.py::test_numbers_within_any_bounds_keep_the_budget"
        "[replace_one-epsilon = 1 (pure)-BinaryTree]",
    ),
    Mutant(
        "clipping",
        "a client's slopes are not clipped",
        "beam_dpcount/local/learner.py",
        "np.maximum.accumulate(np.clip(slopes, -1, 1) + 1) / 2",
        "np.maximum.accumulate(slopes + 1) / 2",
        "tests/test_local.py::test_profiles_of_losses",
    ),
    Mutant(
        "caps",
        "the sum of a tick has no cap where all ticks are added up",
        f"{_STATES}/wire.py",
        "        return np.clip(sums, -cap, cap)\n",
        "        return sums\n",
        "tests/test_ticks.py::test_sums_do_not_depend_on_order_or_packing",
    ),
    Mutant(
        "caps",
        "the sum of a tick has no cap in a cell",
        f"{_STATES}/wire.py",
        "return min(max(total, -cap), cap), pairs[at:] if at else pairs",
        "return total, pairs[at:] if at else pairs",
        "tests/test_ticks.py::test_pending_sums_follow_a_plain_dictionary",
    ),
    Mutant(
        "caps",
        "the sum of a tick has no cap in a shard",
        f"{_DOFNS}/shards.py",
        "return {key: min(max(sums[key], -cap), cap) for key in sorted(sums)}",
        "return {key: sums[key] for key in sorted(sums)}",
        "tests/test_selected_keys_shards.py::test_both_paths_are_the_definition"
        "[small sums-BinaryTree(horizon=40)]",
    ),
    Mutant(
        "caps",
        "a segment is encoded however much gathered in it",
        f"{_COUNTERS}/sparse.py",
        "sums = min(max(gathered, -most), most)",
        "sums = gathered",
        "tests/test_sparse.py::test_sums_beyond_all_noise_are_clipped_before_they_are_encoded",
    ),
    Mutant(
        "caps",
        "an element counts as many items as it names",
        f"{_STATISTICS}/items.py",
        "    if len(kept) > most:\n        kept, reason = kept[:most], TOO_MANY\n",
        "    if len(kept) > most:\n        reason = TOO_MANY\n",
        "tests/test_histograms.py::test_what_an_element_counts",
    ),
    Mutant(
        "caps",
        "an edge counts all triangles where degrees are more than was asserted",
        f"{_STATISTICS}/graph_counts.py",
        "amount = min(graph.common(u, v), self.bounds[1])",
        "amount = graph.common(u, v)",
        "tests/test_graph_statistics.py::test_no_edge_adds_more_where_degrees_are_asserted_in_vain",
    ),
    Mutant(
        "caps",
        "nothing ends at the horizon",
        f"{_MECHANISMS}/base.py",
        "        if t > self.horizon:\n",
        "        if t > self.horizon + 1:\n",
        "tests/test_contract.py::test_nothing_is_released_or_drawn_past_the_horizon[scalar-Simple1]",
    ),
    Mutant(
        "truncation by current degree",
        "a pair is refused if an end has D edges",
        f"{_STATISTICS}/graph.py",
        "return self.degree(u) + self.halves.within(u * self.n, (u + 1) * self.n)",
        "return self.degree(u)",
        "tests/test_graph_statistics.py::test_no_order_of_four_vertices_exceeds_the_bounds"
        "[Edges(vertices=4, max_degree=1, asserted=False)]",
    ),
    # Steps that show by not being there
    Mutant(
        "skipped steps",
        "an element that is refused takes no step",
        f"{_DOFNS}/elements.py",
        '        codes, rejected = intake.codes(key, payload, micros)\n        digest = b""\n',
        "        codes, rejected = intake.codes(key, payload, micros)\n"
        "        if rejected is not None:\n"
        "            return\n"
        '        digest = b""\n',
        "tests/test_counts.py::test_collect_loses_nothing[streaming-fn]",
    ),
    Mutant(
        "skipped steps",
        "an element beyond its person's bound takes no step",
        f"{_DOFNS}/users.py",
        "        if not kept and not parcels.keeps_all:\n",
        "        if not kept:\n",
        "tests/test_people.py::test_elements_beyond_the_bound_take_their_step_and_count_0"
        "[PrefixCount-fn-bounded]",
    ),
    Mutant(
        "skipped steps",
        "keys without events have no releases",
        f"{_DOFNS}/ticks.py",
        "for place in (group,) if plan.alone else range(len(plan.keys)):",
        "for place in sorted({place for place, _ in found}):",
        "tests/test_tick_pipelines.py::test_keys_without_events_have_releases[fn-bounded]",
    ),
    Mutant(
        "skipped steps",
        "a tick without events is not released",
        f"{_DOFNS}/ticks.py",
        "        yield _placed(made, min(micros, counted.max_timestamp().micros), (window,))\n",
        "        if x:\n"
        "            yield _placed(made, min(micros, counted.max_timestamp().micros), (window,))\n",
        "tests/test_tick_pipelines.py::test_keys_without_events_have_releases[fn-streaming]",
    ),
    Mutant(
        "skipped steps",
        "an event starts a clock",
        f"{_DOFNS}/ticks.py",
        "        if element[1] == SEED:\n",
        "        if element[1] == SEED or before is None:\n",
        "tests/test_tick_pipelines.py::test_only_a_seed_starts_the_clock",
    ),
    Mutant(
        "skipped steps",
        "an empty letter does not break a word",
        f"{_STATISTICS}/words.py",
        "        if not letter:\n            return (), ()\n",
        "        if not letter:\n            return memory, ()\n",
        "tests/test_words.py::test_an_empty_letter_breaks_words_and_clears_the_memory",
    ),
    Mutant(
        "skipped steps",
        "an element in two windows counts in each",
        f"{_DOFNS}/ticks.py",
        "        if len(windows) != 1:\n            return None\n",
        "        if not windows:\n            return None\n",
        "tests/test_tick_pipelines.py::test_an_event_in_several_windows_counts_nothing",
    ),
    # Early draws, and state behind what was shown
    Mutant(
        "early draws",
        "a mechanism that draws early does not say so",
        f"{_MECHANISMS}/kary.py",
        "    def draws_early(self) -> bool:\n        return self.subtraction",
        "    def draws_early(self) -> bool:\n        return False",
        "tests/test_contract.py::test_no_coordinate_is_drawn_before_its_row_is_complete[KAry]",
    ),
    Mutant(
        "early draws",
        "one that draws early takes Gaussian noise",
        f"{_MECHANISMS}/kary.py",
        'return frozenset({"laplace"}) if self.subtraction else super().laws',
        "return super().laws",
        "tests/test_contract.py::test_no_coordinate_is_drawn_before_its_row_is_complete[KAry]",
    ),
    Mutant(
        "early draws",
        "by name a stream gets the variant that draws early",
        f"{_MECHANISMS}/kary.py",
        "return replace(self, subtraction=False)",
        "return self",
        "tests/test_counts.py::test_by_name_streaming_takes_the_variant_that_is_safe",
    ),
    Mutant(
        "early draws",
        "a clock yields before it writes its state",
        f"{_DOFNS}/ticks.py",
        "        # State first: what is yielded must never be ahead of what is remembered.\n"
        "        cell.write(codec.encode(state, digest, self._front(passed) + memory))\n"
        "        self._set(timer, passed + step + plan.ahead)\n"
        "        if key == plan.keys[0]:  # all keys have the same ticks\n"
        "            self._horizon.passed(passed + step)\n"
        "        micros = clock.end(origin, step)\n"
        "        made = self._made(key, passed + step, micros, value, counter.stddev_at(state))\n"
        "        yield _placed(made, min(micros, counted.max_timestamp().micros), (window,))\n",
        "        if key == plan.keys[0]:  # all keys have the same ticks\n"
        "            self._horizon.passed(passed + step)\n"
        "        micros = clock.end(origin, step)\n"
        "        made = self._made(key, passed + step, micros, value, counter.stddev_at(state))\n"
        "        yield _placed(made, min(micros, counted.max_timestamp().micros), (window,))\n"
        "        cell.write(codec.encode(state, digest, self._front(passed) + memory))\n"
        "        self._set(timer, passed + step + plan.ahead)\n",
        "tests/test_state_first.py::test_a_step_is_remembered_before_it_is_seen[each_tick]",
    ),
    Mutant(
        "early draws",
        "a refusal is given out before its step is remembered",
        f"{_DOFNS}/elements.py",
        "        kept.state, kept.digest, kept.memory = state, digest, memory\n"
        "        if is_new:\n"
        "            cell.write(kept)\n"
        "        if rejected is not None:\n"
        "            yield beam.pvalue.TaggedOutput(REJECTED, rejected)\n",
        "        if rejected is not None:\n"
        "            yield beam.pvalue.TaggedOutput(REJECTED, rejected)\n"
        "        kept.state, kept.digest, kept.memory = state, digest, memory\n"
        "        if is_new:\n"
        "            cell.write(kept)\n",
        "tests/test_state_first.py::test_a_step_is_remembered_before_it_is_seen"
        "[each_refused_element]",
    ),
    Mutant(
        "early draws",
        "a threshold of segments is not drawn anew",
        f"{_COUNTERS}/sparse.py",
        "                drawn += part.drawn + 1\n"
        "                threshold = self._threshold(noise, drawn)\n",
        "                drawn += part.drawn\n",
        "tests/test_sparse.py::test_steps_and_releases_follow_the_rule[1-BinaryTree-PureDP]",
    ),
    Mutant(
        "exact sums behind the noise",
        "a release holds the last digits of its exact sum",
        f"{_MECHANISMS}/recurrence.py",
        "        E, m, n = self.decode(numbers[middle], numbers[middle + 1 :], t, q + z)\n",
        "        E, m, n = self.decode(numbers[middle], numbers[middle + 1 :], t, q + z)\n"
        "        n += k[0] % 3\n",
        "tests/test_safe_noise.py::test_streams_and_noises_that_give_one_y_give_one_release"
        "[5-scalar-NormalizedBLT]",
        twin=False,
    ),
    Mutant(
        "exact sums behind the noise",
        "an encoder's rows are cut, not rounded",
        f"{_MECHANISMS}/recurrence.py",
        "half = 1 << _POINT + by.weight_bits - 1",
        "half = 0",
        "tests/test_recurrence.py::test_encoded_numbers_are_r_x_rounded",
        twin=False,
    ),
    # Histories
    Mutant(
        "digests without something",
        "the noise does not follow the value",
        f"{_NOISE}/replay.py",
        "        data = digest + value\n",
        "        data = digest\n",
        "tests/test_replay.py::test_runs_share_what_is_before_the_divergence_only[0-BLT]",
    ),
    Mutant(
        "digests without something",
        "the noise does not follow what came before",
        f"{_NOISE}/replay.py",
        "        data = digest + value\n",
        "        data = value\n",
        "tests/test_replay.py::test_runs_share_what_is_before_the_divergence_only[0-BLT]",
    ),
    Mutant(
        "digests without something",
        "keys have one noise",
        f"{_NOISE}/replay.py",
        "place = ascii((str.__str__(key), type(window)",
        "place = ascii((type(window)",
        "tests/test_replay.py::test_whatever_is_public_separates_the_noise",
    ),
    Mutant(
        "digests without something",
        "windows have one noise",
        f"{_NOISE}/replay.py",
        "type(window).__name__, *(b and b.micros for b in bounds)))",
        "type(window).__name__))",
        "tests/test_replay.py::test_windows_separate_the_noise",
    ),
    Mutant(
        "digests without something",
        "counters of other parameters have one noise",
        f"{_NOISE}/replay.py",
        "self._run_id, self._name, parameters, law, dimension))",
        "self._run_id, self._name, law, dimension))",
        "tests/test_replay.py::test_whatever_is_public_separates_the_noise",
    ),
    Mutant(
        "digests without something",
        "counts of one pipeline have one noise",
        f"{_NOISE}/replay.py",
        "self._run_id, self._name, parameters, law, dimension))",
        "self._run_id, parameters, law, dimension))",
        "tests/test_replay.py::test_counts_of_one_pipeline_have_noise_of_their_own[bounded]",
    ),
    Mutant(
        "digests without something",
        "two laws of one history have one noise",
        f"{_NOISE}/replay.py",
        '_key(self._noises, b"law", repr(law)), law.first()',
        '_key(self._noises, b"law", ""), law.first()',
        "tests/test_replay.py::test_laws_that_one_history_mixes_have_noise_of_their_own",
    ),
    Mutant(
        "digests without something",
        "ids of several types are one",
        f"{_NOISE}/replay.py",
        "        return repr(identity)\n",
        "        return ascii(str(identity))\n",
        "tests/test_replay.py::test_ids_are_told_apart_by_what_they_are",
    ),
    Mutant(
        "digests without something",
        "both paths of a clock have one noise",
        f"{_DOFNS}/ticks.py",
        "(path, (self.fold, self.counted))",
        "(self.fold, self.counted)",
        "tests/test_replay.py::test_the_paths_of_ticks_have_noise_of_their_own",
    ),
    Mutant(
        "digests without something",
        "late events that count and that do not have one noise",
        f"{_DOFNS}/ticks.py",
        "(path, (self.fold, self.counted))",
        "(path, self.counted)",
        "tests/test_replay.py::test_all_that_says_where_ticks_count_separates_their_noise[bounded]",
    ),
    Mutant(
        "digests without something",
        "the history of a shard leaves out what a tick counts",
        f"{_DOFNS}/shards.py",
        "NO_ID, self.history_of(columns.step + 1, sums))",
        "NO_ID, self.history_of(columns.step + 1, {}))",
        "tests/test_selected_keys.py::"
        "test_replayable_noise_of_a_shard_follows_what_counts[bounded]",
    ),
    Mutant(
        "digests without something",
        "the history of a shard leaves out what vectors hold",
        f"{_DOFNS}/aggregate_shards.py",
        "entries |= {(key, 1 + place): x for place, x in found}",
        "entries |= {(key, 1 + place): 1 for place, x in found}",
        "tests/test_tick_aggregate.py::test_replayable_noise_follows_what_counts[selected-bounded]",
    ),
    Mutant(
        "digests without something",
        "the noise of vectors does not follow what they hold",
        f"{_DOFNS}/aggregates.py",
        'return pack_sums({step: 0}) + x.astype("<i8").tobytes()',
        "return pack_sums({step: 0})",
        "tests/test_tick_aggregate.py::test_replayable_noise_follows_what_counts[listed-bounded]",
    ),
    # Budgets
    Mutant(
        "shares twice",
        "a share is claimed again",
        f"{_BUDGET}/ledger.py",
        "            if share.name in self._claims:\n",
        "            if share.name in ():\n",
        "tests/test_ledger.py::test_a_share_is_used_once",
    ),
    Mutant(
        "shares twice",
        "shares sum to more than the budget",
        f"{_BUDGET}/ledger.py",
        "            granted = min(asked, left)\n",
        "            granted = asked\n",
        "tests/test_ledger.py::test_no_sequence_of_shares_overspends",
    ),
    Mutant(
        "shares twice",
        "a pure share of a rho costs half",
        f"{_BUDGET}/ledger.py",
        "return self._take(Fraction(epsilon) ** 2 / 2, name, pure=True)",
        "return self._take(Fraction(epsilon) ** 2 / 4, name, pure=True)",
        "tests/test_ledger.py::test_absolute_amounts",
    ),
    Mutant(
        "shares twice",
        "a forked process spends again",
        f"{_BUDGET}/ledger.py",
        "        if self._home != os.getpid():\n",
        "        if self._home is None:\n",
        "tests/test_ledger.py::test_so_it_is_in_a_forked_process",
    ),
    Mutant(
        "shares twice",
        "delta for keys is spent twice",
        f"{_BUDGET}/ledger.py",
        "if asked and self._keys_taken + asked > self._keys_room:",
        "if asked and asked > self._keys_room:",
        "tests/test_keys_delta.py::test_no_sequence_of_claims_overspends",
    ),
    # When keys that nobody listed are shown
    Mutant(
        "tails",
        "a quantile is one too low",
        f"{_COUNTERS}/tails.py",
        "return m - self.reach if m < len(tails) else math.inf",
        "return m - 1 - self.reach if m < len(tails) else math.inf",
        "tests/test_tails.py::test_sums_of_whole_draws_are_exact[DiscreteLaplace-7.5]",
    ),
    Mutant(
        "tails",
        "coarse draws lose their remainders",
        f"{_COUNTERS}/tails.py",
        "k * m.quantile(p) + j * (k - 1)",
        "k * m.quantile(p) + (k - 1)",
        "tests/test_tails.py::test_coarse_draws_count_all_of_their_remainders",
    ),
    Mutant(
        "tails",
        "levels spend twice their total",
        f"{_COUNTERS}/tails.py",
        "if spent(middle) <= total else (low, middle)",
        "if spent(middle) <= 2 * total else (low, middle)",
        "tests/test_tails.py::test_levels_take_no_more_than_their_total[0.3-BinaryTree]",
    ),
    Mutant(
        "tails",
        "a normal quantile for Laplace noise",
        f"{_COUNTERS}/tails.py",
        "for way in (_exact, _normal, _chernoff)], axis=0)",
        "for way in (_exact, _normal, _chernoff)], axis=0) * 0.5",
        "tests/test_tails.py::test_noise_exceeds_its_quantiles_with_at_most_p",
    ),
    Mutant(
        "tails",
        "no tail of a law is drawn",
        f"{_NOISE}/tables.py",
        "                words.append(low >> shift)\n",
        "                words.append(low >> shift >> 40 << 40)\n",
        "tests/test_laws.py::test_no_tail_is_cut[DiscreteLaplace-2.33333]",
    ),
    Mutant(
        "selection",
        "a threshold leaves out what one event adds",
        f"{_COUNTERS}/selection.py",
        "        made = each + thresholds(counter, total, tested)\n",
        "        made = thresholds(counter, total, tested)\n",
        "tests/test_selected_keys_thresholds.py::test_all_allocations_are_within_delta"
        "[add_remove-BinaryTree]",
    ),
    Mutant(
        "selection",
        "the keys of one person share a delta that each of them takes",
        f"{_COUNTERS}/selection.py",
        "self.delta / (touched.sides * touched.counters)",
        "self.delta / touched.sides",
        "tests/test_selected_keys_thresholds.py::test_all_allocations_are_within_delta"
        "[add_remove-BinaryTree]",
    ),
    Mutant(
        "selection",
        "a key is shown by its first event",
        f"{_COUNTERS}/columns.py",
        "    shown = shown | (y >= selection.lattice_thresholds[step - 1])\n",
        "    shown = shown | (y >= selection.lattice_thresholds[step - 1]) | (x > 0)\n",
        "tests/test_side_doors.py::test_hidden_keys_leave_by_no_side_door[TickCount]",
    ),
    Mutant(
        "selection",
        "the first events of a key are counted though they are to be left out",
        f"{_COUNTERS}/columns.py",
        "            born[name] = total - selection.skipped\n",
        "            born[name] = total\n",
        "tests/test_selected_keys_shards.py::test_both_paths_are_the_definition"
        "[at_least-BinaryTree(horizon=40)]",
    ),
    # People
    Mutant(
        "bounding",
        "all events of a person count",
        f"{_COUNTERS}/people.py",
        "        return events >= self.events\n",
        "        return False\n",
        "tests/test_people.py::test_a_person_with_a_thousand_events_counts_k_times[fn-bounded]",
    ),
    Mutant(
        "bounding",
        "a person has as many keys as there are",
        f"{_COUNTERS}/people.py",
        "if n < self.per_key and (n or len(counted) < self.keys):",
        "if n < self.per_key:",
        "tests/test_people.py::test_who_counts_is_what_the_rule_says[fn-bounded]",
    ),
    Mutant(
        "bounding",
        "a gap is kept to the last event only",
        f"{_COUNTERS}/people.py",
        "for time in times[max(at - 1, 0) : at + 1])",
        "for time in times[-1:])",
        "tests/test_people.py::test_a_gap_is_to_both_sides[streaming]",
    ),
    Mutant(
        "bounding",
        "which of a person's events count depends on their arrival",
        f"{_DOFNS}/parcels.py",
        "        return sorted(entries)\n",
        "        return sorted(entries, key=time_bytes)\n",
        "tests/test_people.py::test_ties_are_by_key_and_value_and_not_by_arrival",
    ),
    Mutant(
        "bounding",
        "which elements of a person count depends on their contents",
        f"{_DOFNS}/parcels.py",
        "            return sorted(entries, key=time_bytes)\n",
        "            return sorted(entries)\n",
        "tests/test_people.py::test_ties_of_elements_without_ids_are_by_arrival[bounded]",
    ),
    Mutant(
        "bounding",
        "k events in one counter cost k, not k squared",
        f"{_COUNTERS}/users.py",
        "        return k * k * Fraction(mechanism.l2_sensitivity_squared)\n",
        "        return k * Fraction(mechanism.l2_sensitivity_squared)\n",
        "tests/test_users.py::test_no_allocation_to_keys_exceeds_the_norms",
    ),
    Mutant(
        "bounding",
        "contents of k elements cost k, not k squared",
        f"{_COUNTERS}/users.py",
        "lambda k: (k * n) ** 2 * l2_squared",
        "lambda k: k * n * l2_squared",
        "tests/test_users.py::test_all_contents_of_a_persons_elements[SmoothBinary]",
    ),
    Mutant(
        "bounding",
        "an event less is taken to cost one event",
        f"{_COUNTERS}/users.py",
        "return 1 if plain else self._of_two(mechanism)",
        "return 1",
        "tests/test_people_audit.py::test_an_event_less_costs_more_than_one_event",
    ),
    Mutant(
        "bounding",
        "what replaces an event at a clock is taken for one that is there or not",
        f"{_COUNTERS}/change.py",
        'if self.relation == "add_remove":\n            return l1, l2_squared\n        # v R_s',
        "if self.relation:\n            return l1, l2_squared\n        # v R_s",
        "tests/test_ticks.py::test_no_event_changes_more_than_the_norms_say"
        "[1-replace_one-BinaryTree(horizon=4)]",
    ),
    # Several sums, keys and items of one event, or of one person
    Mutant(
        "too little noise",
        "items of an event are not keys of a person",
        f"{_TRANSFORMS}/ticks.py",
        "one, bound, windows = self._change, users.bound(self.max_items), len(",
        "one, bound, windows = self._change, users.bound(), len(",
        "tests/test_attained.py::test_each_event_of_a_person_counts_under_several_items[add_remove]",
    ),
    Mutant(
        "bounding",
        "of an event's items only one counts, with people",
        f"{_TRANSFORMS}/ticks.py",
        "            bound = self.users.bound(self.max_items)\n",
        "            bound = self.users.bound()\n",
        "tests/test_attained.py::test_a_persons_one_event_counts_under_all_of_its_items",
    ),
    Mutant(
        "too little noise",
        "people who are counted once a key cost no Laplace noise",
        f"{_COUNTERS}/joint.py",
        " + counters * sum(part.l1 for part in once)\n",
        "\n",
        "tests/test_attained.py::"
        "test_distinct_people_count_once_beside_their_events[3-pure-add_remove]",
    ),
    Mutant(
        "too little noise",
        "a person's sums of two signs cost as sums of one sign",
        f"{_COUNTERS}/joint.py",
        "return 2 if mechanism.is_nonnegative and not signed else 4",
        "return 2 if mechanism.is_nonnegative else 4",
        "tests/test_attained.py::test_a_sum_of_two_signs_may_change_by_twice_as_much[person-zCDP]",
    ),
    Mutant(
        "too little noise",
        "an event's sum of two signs costs as a sum of one sign",
        f"{_COUNTERS}/joint.py",
        "max(2 * squared, spans) if mechanism.is_nonnegative",
        "2 * squared if mechanism.is_nonnegative",
        "tests/test_attained.py::test_a_sum_of_two_signs_may_change_by_twice_as_much[event-zCDP]",
    ),
    Mutant(
        "too little noise",
        "an edge of a person is one change, with Laplace noise",
        f"{_COUNTERS}/users.py",
        "return self.events * n * l1, squared",
        "return self.events * l1, squared",
        "tests/test_attained.py::test_an_edge_of_a_person_is_two_changes[2]",
    ),
    Mutant(
        "too little noise",
        "rounding on one side, where a person's events move",
        f"{_COUNTERS}/users.py",
        "times * m * m * squared, sides * touched)",
        "times * m * m * squared, touched)",
        "tests/test_attained.py::"
        "test_every_counter_that_changes_is_rounded_apart[a person-replace_one]",
    ),
    Mutant(
        "too little noise",
        "rounding of metrics on one side, where a person's events move",
        f"{_COUNTERS}/joint.py",
        "times * worst, sides * touched)",
        "times * worst, touched)",
        "tests/test_attained.py::"
        "test_every_counter_that_changes_is_rounded_apart[metrics of a person-replace_one]",
    ),
    Mutant(
        "too little noise",
        "rounding of metrics on one side, where an event moves",
        f"{_COUNTERS}/joint.py",
        "l1, touched = 2 * l1, 2 * touched",
        "l1 = 2 * l1",
        "tests/test_attained.py::"
        "test_every_counter_that_changes_is_rounded_apart[metrics of an event-replace_one]",
    ),
    Mutant(
        "selection",
        "the first metric shows a key, not the number of events",
        f"{_DOFNS}/aggregate_shards.py",
        "return self.joint.tested or 0",
        "return 0",
        "tests/test_vector_shards.py::test_no_sum_but_the_number_of_events_shows_a_key[streaming]",
    ),
    Mutant(
        "clipping",
        "vectors of hidden keys are not clipped, tick by tick",
        f"{_DOFNS}/aggregate_shards.py",
        "made[column] = min(max(x, -cap), cap)",
        "made[column] = x",
        "tests/test_vector_shards.py::test_sums_of_a_tick_are_clipped[1-streaming]",
    ),
    Mutant(
        "clipping",
        "vectors of hidden keys are not clipped, all at once",
        f"{_DOFNS}/aggregate_shards.py",
        "return names, Sums(sums.places, sums.steps, np.clip(sums.xs, -caps, caps))",
        "return names, sums",
        "tests/test_vector_shards.py::test_sums_of_a_tick_are_clipped[1-bounded]",
    ),
    Mutant(
        "digests without something",
        "shards have one noise whether late events count or not",
        f"{_DOFNS}/shards.py",
        "self.shards, self.cap, self.fold, self.counted))",
        "self.shards, self.cap, self.counted))",
        "tests/test_vector_shards.py::"
        "test_noise_of_shards_depends_on_all_that_decides_what_counts[metrics]",
    ),
    Mutant(
        "too little noise",
        "an edge of a person is one change, with Gaussian noise",
        f"{_COUNTERS}/users.py",
        "lambda k: (k * n) ** 2 * l2_squared",
        "lambda k: k**2 * l2_squared",
        "tests/test_attained.py::test_an_edge_of_a_person_is_two_changes[1]",
    ),
    Mutant(
        "too little noise",
        "rounding of sums that count a person once",
        f"{_COUNTERS}/joint.py",
        "        touched += counters * sum(part.touched for part in once)\n",
        "",
        "tests/test_attained.py::"
        "test_every_counter_that_changes_is_rounded_apart[distinct people-add_remove]",
    ),
    Mutant(
        "too little noise",
        "of the sums that an event may touch the least count",
        f"{_STATISTICS}/metrics/joint.py",
        "largest = sorted(limits)[-metric.touched :]",
        "largest = sorted(limits)[: metric.touched]",
        "tests/test_joint.py::test_of_the_sums_that_an_event_may_touch_the_largest_counts",
    ),
    Mutant(
        "digests without something",
        "shards have one noise on both paths",
        f"{_DOFNS}/shards.py",
        "ascii((path, self.clock, self.said, counter.fingerprint))",
        "ascii((self.clock, self.said, counter.fingerprint))",
        "tests/test_vector_shards.py::"
        "test_noise_of_shards_depends_on_all_that_decides_what_counts[numbers]",
    ),
    Mutant(
        "digests without something",
        "shards have one noise at two clocks",
        f"{_DOFNS}/shards.py",
        "ascii((path, self.clock, self.said, counter.fingerprint))",
        "ascii((path, self.said, counter.fingerprint))",
        "tests/test_vector_shards.py::"
        "test_noise_of_shards_depends_on_all_that_decides_what_counts[numbers]",
    ),
    Mutant(
        "digests without something",
        "shards have one noise whatever counts them",
        f"{_DOFNS}/shards.py",
        "ascii((path, self.clock, self.said, counter.fingerprint))",
        "ascii((path, self.clock, self.said))",
        "tests/test_vector_shards.py::"
        "test_noise_of_shards_depends_on_all_that_decides_what_counts[numbers]",
    ),
    Mutant(
        "digests without something",
        "shards have one noise whatever else decides which events count",
        f"{_DOFNS}/shards.py",
        "self.shards, self.cap, self.fold, self.counted))",
        "self.shards, self.cap, self.fold))",
        "tests/test_vector_shards.py::"
        "test_noise_of_shards_depends_on_all_that_decides_what_counts[numbers]",
    ),
    Mutant(
        "digests without something",
        "parts of an id run into each other",
        f"{_NOISE}/replay.py",
        "''.join(_named(part) + ',' for part",
        "''.join(_named(part) for part",
        "tests/test_replay.py::test_noise_is_another_for_whatever_is_another",
    ),
    # State
    Mutant(
        "splices of state",
        "states are not checked",
        f"{_STATES}/envelope.py",
        "zlib.crc32(data[:end]) == CHECK.unpack_from(data, end)[0]:",
        "len(data) > 0:",
        "tests/test_coders.py::test_the_state_of_one_moment_with_the_memory_of_another_is_refused",
    ),
    Mutant(
        "splices of state",
        "a state is known by its counter alone",
        f"{_STATES}/envelope.py",
        "_fingerprint(ascii([text for text, _ in parts]), 4)",
        "_fingerprint(ascii([text for text, _ in parts[:1]]), 4)",
        "tests/test_selected_keys_shards.py::test_states_of_other_parameters_are_refused"
        "[{'every': 2}-selected otherwise]",
    ),
    Mutant(
        "splices of state",
        "a counter reads the states of others",
        f"{_STATES}/envelope.py",
        "                fingerprint == self._fingerprint\n                and digest",
        "                digest",
        "tests/test_coders.py::test_states_of_other_counters_are_refused[horizon]",
    ),
    Mutant(
        "splices of state",
        "a counter reads states that formats before have written",
        f"{_STATES}/envelope.py",
        "                and form == FORMAT\n",
        "",
        "tests/test_coders.py::test_other_versions_are_refused_by_name[2]",
    ),
    Mutant(
        "splices of state",
        "a clock reads the state of another list of keys",
        f"{_STATES}/codecs.py",
        "(ascii(tuple(keys)), OTHER_KEYS)]",
        '("", OTHER_KEYS)]',
        "tests/test_ticks.py::test_another_list_of_keys_is_refused_and_said_so",
    ),
    Mutant(
        "splices of state",
        "a worker of another version goes on",
        f"{_DOFNS}/versions.py",
        "        if made_by != HERE:\n",
        "        if not made_by:\n",
        "tests/test_surroundings.py::test_a_worker_of_another_version_counts_nothing",
    ),
    # Order
    Mutant(
        "order of output",
        "keys come in the order of their events",
        f"{_DOFNS}/ticks.py",
        "for place in (group,) if plan.alone else range(len(plan.keys)):",
        "for place in dict.fromkeys([*(p for p, _ in found), *range(len(plan.keys))]):",
        "tests/test_order.py::test_the_order_of_releases_is_public[1-runners0]",
    ),
    Mutant(
        "order of output",
        "keys of a shard come in the order in which they were first seen",
        f"{_COUNTERS}/columns.py",
        "releases = sorted((names[i], float(values[i])) for i in np.flatnonzero(shown).tolist())",
        "releases = [(names[i], float(values[i])) for i in np.flatnonzero(shown).tolist()]",
        "tests/test_selected_keys_shards.py::test_releases_of_a_tick_come_by_key_whatever_came_first",
    ),
    Mutant(
        "order of output",
        "rows of a file come as they were made",
        f"{_COMMANDS}/files/tables.py",
        "return np.lexsort(columns[::-1])",
        "return np.arange(len(table))",
        "tests/test_files.py::test_every_runner_writes_one_file_in_the_public_order",
    ),
    Mutant(
        "bounding",
        "with a gap there is room in one window alone, where each starts anew",
        f"{_COUNTERS}/users.py",
        "ticks = mechanism.horizon * self.windows * self.restarts",
        "ticks = mechanism.horizon * self.windows",
        "tests/test_users.py::test_what_starts_anew_in_windows_is_bounded_over_all_of_them",
    ),
    Mutant(
        "norms a hair small",
        "a gap is rounded up to whole ticks",
        f"{_TRANSFORMS}/ticks.py",
        "gap=bound.gap // clock.tick,",
        "gap=-(-bound.gap // clock.tick),",
        "tests/test_combinations.py::test_a_gap_of_parts_of_a_tick_is_rounded_down",
    ),
    Mutant(
        "bounding",
        "a count with asserted people stands behind a bound",
        f"{_TRANSFORMS}/users.py",
        "if count.users is not None and count.users.asserted:",
        "if count.users is not None and count.users.asserted is None:",
        "tests/test_people.py::test_bound_users_refuses_what_promises_something_about_one_event",
    ),
    Mutant(
        "bounding",
        "a histogram's people are others than those of the bound before it",
        f"{_TRANSFORMS}/users.py",
        "and self._of_pairs and isinstance(count, TickHistogram):",
        "and isinstance(count, TickHistogram) and not self._of_pairs:",
        "tests/test_people.py::test_a_histogram_beside_pairs_has_no_people_of_its_own",
    ),
    Mutant(
        "digests without something",
        "noise behind a bound does not follow what other counts round to 0",
        f"{_TRANSFORMS}/users.py",
        'said["start"], said["stop"], numbers\n',
        'said["start"], said["stop"]\n',
        "tests/test_people.py::test_noise_behind_a_bound_follows_what_its_other_counts_count",
    ),
    Mutant(
        "skipped steps",
        "an element that does not come back from its bytes takes no step",
        f"{_DOFNS}/parcels.py",
        'return [(key_of(parcel).decode("utf-8", "surrogatepass"), Lost())]',
        "return []",
        "tests/test_people.py::test_contents_that_do_not_come_back_stop_nothing",
    ),
    Mutant(
        "bounding",
        "a pair comes back with the key that its own encoding makes",
        f"{_DOFNS}/parcels.py",
        "    return str.__str__(element[0]), element[1]\n",
        "    return element[0], element[1]\n",
        "tests/test_people_keys.py::test_each_key_at_a_clock_counts_as_often_as_the_bound_says"
        "[bounded-disguised_key]",
    ),
    Mutant(
        "bounding",
        "what has no key travels whole, and may come back with one",
        f"{_DOFNS}/parcels.py",
        "        if not has_str_key(element):\n            return None\n",
        "        if not has_str_key(element):\n"
        '            return _pack_element(self._coder, "", element)\n',
        "tests/test_people_keys.py::test_elements_without_a_key_stay_without_one",
    ),
    Mutant(
        "bounding",
        "an event behind a bound may be another person's to the count that reads it again",
        f"{_DOFNS}/users.py",
        "            if parcels.is_still_of(person, element)\n",
        "",
        "tests/test_people_keys.py::test_people_behind_a_bound_are_those_who_were_bounded[bounded]",
    ),
    # What else leaves
    Mutant(
        "logs and metrics",
        "a metric counts what is refused",
        f"{_DOFNS}/intake.py",
        "        codes, reason = self._read(content)\n",
        "        codes, reason = self._read(content)\n"
        "        if reason is not None:\n"
        "            from apache_beam.metrics.metric import Metrics\n\n"
        '            Metrics.counter("beam_dpcount", "refused").inc()\n',
        "tests/test_side_doors.py::test_contents_of_elements_leave_by_no_side_door[PrefixCount]",
    ),
    Mutant(
        "logs and metrics",
        "an event of an unknown key is logged",
        f"{_DOFNS}/ticks.py",
        '                raise UnknownKeyError(f"an event\'s key is not among `keys`: {remedy}")\n'
        "            return None\n",
        '                raise UnknownKeyError(f"an event\'s key is not among `keys`: {remedy}")\n'
        "            import logging\n\n"
        '            logging.getLogger(__name__).debug("an event of an unknown key")\n'
        "            return None\n",
        "tests/test_side_doors.py::test_presence_of_events_at_ticks_leaves_by_no_side_door"
        "[TickCount]",
    ),
    Mutant(
        "logs and metrics",
        "a metric counts the events beyond a person's bound",
        f"{_DOFNS}/users.py",
        "        if not kept and not parcels.keeps_all:\n            return []\n",
        "        if not kept and not parcels.keeps_all:\n"
        "            from apache_beam.metrics.metric import Metrics\n\n"
        '            Metrics.counter("beam_dpcount", "left out").inc()\n'
        "            return []\n",
        "tests/test_people.py::test_whose_events_count_leaves_by_no_side_door[bounded]",
    ),
    Mutant(
        "messages",
        "an error shows the value that is no number",
        f"{_COUNTERS}/lattice.py",
        'raise NotANumberError("the value is not a number")',
        'raise NotANumberError(f"{x!r} is not a number")',
        "tests/test_counter.py::test_what_is_no_number_is_refused_without_showing_it",
    ),
    Mutant(
        "messages",
        "a state that cannot be read is shown",
        f"{_STATES}/envelope.py",
        "OTHER_FORMAT.format(theirs=data[0],",
        "OTHER_FORMAT.format(theirs=int.from_bytes(data[24:32], 'little'),",
        "tests/test_coders.py::test_other_versions_are_refused_by_name[2]",
    ),
    Mutant(
        "messages",
        "an error shows the cells of a row",
        f"{_COMMANDS}/files/records.py",
        'unread(row, missing, f"the row is too short, {len(record)} of {width} cells")',
        'unread(row, missing, f"the row is too short, {record}")',
        "tests/test_files.py::test_short_rows",
    ),
    Mutant(
        "messages",
        "what was read of elements is pickled with what reads them",
        f"{_DOFNS}/intake.py",
        'return {**self.__dict__, "_known": known, "recalled": recalled}',
        "return {**self.__dict__}",
        "tests/test_ticks.py::test_what_is_remembered_of_numbers_is_in_no_pickle",
    ),
    Mutant(
        "files",
        "half a file is left where a disk is full",
        f"{_COMMANDS}/files/beside.py",
        "            _delete(name, local)\n        if isinstance",
        "            os.stat(name)\n        if isinstance",
        "tests/test_files.py::test_a_write_that_fails_leaves_nothing_behind",
    ),
    Mutant(
        "accounts",
        "a run that began to write costs nothing if it fails",
        f"{_COMMANDS}/spending.py",
        " or stop.wrote\n",
        "\n",
        "tests/test_account.py::test_a_run_that_began_to_write_counts",
    ),
    Mutant(
        "accounts",
        "a run is entered after it has counted",
        f"{_COMMANDS}/spending.py",
        '        add(line if again is None else line | {"again": again})\n',
        "",
        "tests/test_account.py::test_a_run_is_entered_before_anything_is_counted",
    ),
    Mutant(
        "accounts",
        "a repeat that dies, whatever its rows were by then, costs nothing",
        f"{_COMMANDS}/spending.py",
        "accounts.new_run(account, task.name, full, use,",
        "accounts.new_run(account, task.name, charges, use,",
        "tests/test_account.py::test_a_repeat_that_dies_costs_what_it_may_have_released",
    ),
    Mutant(
        "accounts",
        "runs of other public texts are one where their file has the same name",
        f"{_COMMANDS}/spending.py",
        ", sorted(task.lists.items())),",
        "),",
        "tests/test_account.py::test_lists_that_can_be_read_once_are_told_apart[domain]",
    ),
    Mutant(
        "accounts",
        "public texts that nobody took note of are the same in every run",
        f"{_COMMANDS}/spending.py",
        "    if not files <= {*task.lists}:\n",
        "    if not files:\n",
        "tests/test_account.py::test_a_mark_is_of_all_that_releases_follow_from",
    ),
    Mutant(
        "accounts",
        "a run may publish what others protect",
        f"{_BUDGET}/odometer.py",
        "        named = self.public & other.protected | other.public & self.protected\n",
        "        named = other.public & self.protected\n",
        "tests/test_odometer.py::test_what_one_protects_and_another_publishes_is_refused_both_ways",
    ),
    Mutant(
        "accounts",
        "a run may protect what others publish",
        f"{_BUDGET}/odometer.py",
        "        named = self.public & other.protected | other.public & self.protected\n",
        "        named = self.public & other.protected\n",
        "tests/test_odometer.py::test_what_one_protects_and_another_publishes_is_refused_both_ways",
    ),
    Mutant(
        "accounts",
        "a column that is public is claimed",
        f"{_BUDGET}/odometer.py",
        "named = self.protected - self.public - {UNKNOWN}",
        "named = self.protected - {UNKNOWN}",
        "tests/test_odometer.py::test_nothing_that_is_claimed_is_public",
    ),
    Mutant(
        "accounts",
        "ticks are charged for a row that is there or not where rows are public",
        f"{_BUDGET}/charges.py",
        "self.replacement if of_replacement else",
        "self.presence if of_replacement else",
        "tests/test_odometer.py::test_the_total_is_of_what_is_left",
    ),
    Mutant(
        "accounts",
        "a key that changes from one to another costs one change",
        f"{_COUNTERS}/charged.py",
        "        return charge.of_two()\n    mechanism",
        "        return charge\n    mechanism",
        "tests/test_odometer.py::test_a_key_that_changes_loses_twice_as_brute_force_says",
    ),
    Mutant(
        "accounts",
        "a row that goes from one person to another costs as one that stays",
        f"{_COUNTERS}/charged.py",
        "of_people = isinstance(change, UserChange) and not for_person",
        "of_people = False",
        "tests/test_odometer.py::test_a_replacement_costs_its_norm_or_two_changes[others]",
    ),
    Mutant(
        "accounts",
        "runs of an earlier format publish nothing",
        f"{_BUDGET}/account_file.py",
        "_OLD = ColumnUse(frozenset([PRESENCE, UNKNOWN]), frozenset([UNKNOWN]))",
        "_OLD = ColumnUse()",
        "tests/test_odometer.py::test_accounts_of_the_format_before_take_runs_by_request_alone",
    ),
    Mutant(
        "accounts",
        "a count per element publishes no column",
        f"{_COMMANDS}/task.py",
        "frozenset({PRESENCE, *(read - counted)})",
        "frozenset()",
        "tests/test_odometer.py::test_every_command_says_which_columns_it_uses[words0]",
    ),
    Mutant(
        "accounts",
        "a dry run counts",
        f"{_COMMANDS}/run.py",
        "    if options.dry_run:\n",
        "    if options.dry_run and options.check:\n",
        "tests/test_dry_run.py::test_it_says_what_a_run_says[count]",
    ),
    Mutant(
        "accounts",
        "a row behind a bound on people costs one change",
        f"{_COUNTERS}/charged.py",
        "    return max(change.event_cost(counter.mechanism), change.for_element**2)\n",
        "    return 1\n",
        "tests/test_account.py::test_a_row_may_be_two_changes[person]",
    ),
    Mutant(
        "files",
        "an empty cell of the only column takes no step",
        f"{_COMMANDS}/files/records.py",
        "            if width > 1:\n                continue\n",
        "            if width:\n                continue\n",
        "tests/test_door.py::test_a_blank_line_of_one_column_takes_its_step",
    ),
    Mutant(
        "files",
        "a row that cannot be read stops a clock",
        f"{_COMMANDS}/files/read.py",
        "unread = _no_trace if source.per_tick else partial(_stop, file)",
        "unread = partial(_stop, file)",
        "tests/test_hostile_clock.py::test_no_row_of_a_file_is_seen[csv-]",
    ),
    Mutant(
        "files",
        "an event at a clock tells how many rows are before it",
        f"{_COMMANDS}/files/read.py",
        "Event(value, file, row, person) if placed",
        "Event(value, file, row, person) if file",
        "tests/test_hostile_clock.py::test_what_is_read_of_a_row_says_nothing_of_others[csv]",
    ),
    Mutant(
        "files",
        "a quote that stays open takes the next line",
        f"{_COMMANDS}/files/records.py",
        "(_joined if source.multiline else _alone)(source, readable)",
        "(_joined if source.per_tick else _alone)(source, readable)",
        "tests/test_hostile_clock.py::test_no_row_of_a_file_is_seen[csv-]",
    ),
    Mutant(
        "files",
        "bytes that are not UTF-8 are replaced, and two people are one",
        f"{_COMMANDS}/files/lines.py",
        "        return line.decode()\n",
        '        return line.decode(errors="replace")\n',
        "tests/test_hostile_clock.py::test_people_whose_bytes_differ_are_not_one",
    ),
    Mutant(
        "files",
        "the first row of JSON lines says that the file is gzip",
        f"{_COMMANDS}/files/lines.py",
        "(has_header or _unpacks(file))",
        "(has_header or True)",
        "tests/test_hostile_clock.py"
        "::test_a_first_line_that_looks_like_gzip_is_a_line[first bytes]",
    ),
    Mutant(
        "files",
        "a row of Parquet that cannot be read is one with a null",
        f"{_COMMANDS}/files/parquet.py",
        "            if at in odd:\n",
        "            if at in odd and not source.per_tick:\n",
        "tests/test_hostile_clock.py::test_a_private_look_at_parquet",
    ),
    Mutant(
        "files",
        "Arrow checks the text of all categories, and stops",
        f"{_COMMANDS}/files/parquet.py",
        "if any(map(pa.types.is_dictionary, kinds)):",
        "if not kinds:",
        "tests/test_hostile_clock.py::test_no_row_of_a_file_is_seen"
        "[parquet, dictionaries of them-]",
    ),
    Mutant(
        "files",
        "a damaged file stops a run that is charged",
        f"{_COMMANDS}/files/read.py",
        '    try:\n        lines.check(readable, has_header=kind == "csv")\n',
        "    try:\n        pass\n",
        "tests/test_hostile_clock.py"
        "::test_a_damaged_file_stops_before_anything_is_drawn_or_charged[gzip]",
    ),
    Mutant(
        "messages",
        "a broken quote at a clock tells its row",
        f"{_COMMANDS}/files/records.py",
        "where = None if source.per_tick else row + 1",
        "where = row + 1",
        "tests/test_hostile_clock.py::test_line_breaks_within_quotes",
    ),
    Mutant(
        "files",
        "others read a file before it is whole",
        f"{_COMMANDS}/files/beside.py",
        "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600",
        "os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644",
        "tests/test_door.py::test_nobody_reads_a_file_that_is_not_whole",
    ),
    Mutant(
        "logs and metrics",
        "NumPy warns of a client whose slopes are masked",
        "beam_dpcount/local/learner.py",
        'if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiub":',
        "if found is None:",
        "tests/test_local.py::test_profiles_of_losses",
    ),
    Mutant(
        "files",
        "others read a private file, if they could read what was there",
        f"{_COMMANDS}/files/beside.py",
        "return mode & 0o700 if private else mode",
        "return mode",
        "tests/test_door.py::test_a_private_file_is_its_owners_alone_whatever_was_there[420-384]",
    ),
    Mutant(
        "files",
        "others read a picture of the truth",
        f"{_COMMANDS}/figures/png.py",
        "private=truth is not None",
        "private=False",
        "tests/test_cli.py::test_a_picture_of_the_truth_is_its_owners_alone[truth]",
    ),
    Mutant(
        "files",
        "a manifest has the digest of its input",
        f"{_COMMANDS}/manifest.py",
        '        "command": task.name,\n',
        '        "command": task.name,\n        "input": hash(open(options.input[0]).read()),\n',
        "tests/test_each_command.py::test_neighbours_show_the_same_but_for_values[count]",
    ),
    Mutant(
        "files",
        "a report says how many rows were read",
        f"{_COMMANDS}/run.py",
        "        task.written(),\n",
        '        f"{task.written()} ({sum(map(len, open(options.input[0])))})",\n',
        "tests/test_each_command.py::test_neighbours_show_the_same_but_for_values[ticks]",
    ),
    # Ticks and windows that are not equally long
    Mutant(
        "local days",
        "an event too late for the last tick of a short window counts in the next window",
        f"{_DOFNS}/ticks.py",
        "is_over = released >= plan.clock.steps_of(plan.clock.origin_after(passed))",
        "is_over = released >= plan.clock.steps",
        "tests/test_local_days.py::test_no_event_of_a_short_window_counts_in_the_next",
    ),
    Mutant(
        "local days",
        "states and noise do not know when local days begin",
        f"{_COUNTERS}/grid.py",
        "        return repr((self.start, self.window is None, self.steps, runs))",
        "        return repr((self.start, self.window is None, self.steps))",
        "tests/test_clock.py::test_another_database_is_another_clock",
    ),
    Mutant(
        "local days",
        "a gap is taken for as many ticks as fit into it where days are short",
        f"{_COUNTERS}/grid.py",
        "        return max(within + between)",
        "        return min(within + between)",
        "tests/test_local_days.py::test_a_gap_is_of_ticks_of_the_longest_length",
    ),
    Mutant(
        "local days",
        "the counter of a window is made for the shortest",
        f"{_COUNTERS}/grid.py",
        "    steps = max(after - before for before, after in pairwise(ranks))",
        "    steps = min(after - before for before, after in pairwise(ranks))",
        "tests/test_clock.py::test_hourly_ticks_of_days_with_23_to_25_hours",
    ),
    Mutant(
        "local days",
        "a window that starts with another, and ends later, has its count",
        f"{_DOFNS}/ticks.py",
        "        and window.end.micros == clock.closing(window.start.micros)\n",
        "        and window.end.micros >= clock.closing(window.start.micros)\n",
        "tests/test_local_days.py::test_windows_lie_between_their_borders",
    ),
    # What is left in workers
    Mutant(
        "pickles",
        "a clock is pickled with its cache, which it has once it saw an event",
        f"{_COUNTERS}/grid.py",
        "        return {field.name: getattr(self, field.name) for field in fields(self)}\n",
        "        return dict(self.__dict__)\n",
        "tests/test_whole.py::test_presence_of_events[TickCount-2]",
    ),
    Mutant(
        "pickles",
        "a reader of ready ticks is pickled with the window of the last event",
        f"{_DOFNS}/parcels.py",
        "        return type(self), (self.clock,)  # without the window of the last event\n",
        "        return type(self), (self.clock,), dict(self.__dict__)\n",
        "tests/test_whole.py::test_presence_of_events[DistinctUsers-2]",
    ),
    # What the user's functions raise
    Mutant(
        "errors of events",
        "only some errors of the user's functions are data",
        "beam_dpcount/reading.py",
        "    except Exception:\n        return UNREADABLE",
        "    except (ValueError, TypeError, ArithmeticError, LookupError):\n"
        "        return UNREADABLE",
        "tests/test_poison.py::test_every_error_is_data[own]",
    ),
    Mutant(
        "errors of events",
        "an event counts nothing if memory is short, which others cause",
        "beam_dpcount/reading.py",
        "    except MemoryError:\n        raise\n",
        "",
        "tests/test_poison.py::test_what_no_event_is_to_blame_for_stops[memory]",
    ),
    Mutant(
        "errors of events",
        "whether an event can be sent depends on the memory that others leave",
        f"{_DOFNS}/parcels.py",
        "    encoded = read(coder.encode, element)\n"
        "    return None if encoded is UNREADABLE else bytes(encoded)\n",
        "    try:\n"
        "        return bytes(coder.encode(element))\n"
        "    except Exception:\n"
        "        return None\n",
        "tests/test_poison.py::test_an_event_that_memory_does_not_suffice_to_send_stops",
    ),
    Mutant(
        "errors of events",
        "a class is asked whether it is one of rows, which may be its own class's code",
        f"{_DOFNS}/rows.py",
        '        return class_attribute(kind, "_fields") is not None\n',
        '        return hasattr(kind, "_fields")\n',
        "tests/test_poison.py::test_rows_are_told_without_asking_a_class[willing pair]",
    ),
    Mutant(
        "errors of events",
        "a refusal asks a class for its name, which may be its own class's code",
        f"{_DOFNS}/intake.py",
        "pair but {class_name(type(element))}",
        "pair but {type(element).__name__}",
        "tests/test_poison.py::test_a_refusal_names_a_class_without_asking_it",
    ),
    Mutant(
        "errors of events",
        "a value is asked for its class, which may be its own code",
        "beam_dpcount/reading.py",
        "    if issubclass(kind, str):\n",
        "    if isinstance(value, str):\n",
        "tests/test_poison.py::test_no_code_of_an_id_is_run[masked]",
    ),
    Mutant(
        "people",
        "a field's name runs properties of the event",
        "beam_dpcount/reading.py",
        "            return vars(event).get(name)\n",
        "            return getattr(event, name, None)\n",
        "tests/test_users.py::test_a_field_says_whose_an_event_is[row]",
    ),
    Mutant(
        "people",
        "functions that remember pass dp.check",
        f"{_TRANSFORMS}/checking.py",
        "        if again != before:\n",
        "        if again.problem != before.problem:\n",
        "tests/test_checking.py::test_functions_that_remember_are_errors",
    ),
    # What users start from
    Mutant(
        "pipelines",
        "a line that is no CSV stops a pipeline to start from, and the error shows it",
        "pipelines/files.py",
        "    except csv.Error:\n",
        "    except StopIteration:\n",
        "tests/test_start_pipelines.py::test_lines_that_cannot_be_read_are_no_events",
    ),
    Mutant(
        "pipelines",
        "a line without an edge is left out, and the number of elements tells",
        "pipelines/triangles.py",
        "    if seconds is not None:\n        numbers",
        "    if seconds is not None and any(pair):\n        numbers",
        "tests/test_start_pipelines.py::test_a_line_without_an_edge_takes_its_step",
    ),
    Mutant(
        "pipelines",
        "pipelines to start from write releases in the order in which they come",
        "pipelines/files.py",
        "beam.FlatMap(sorted)",
        "beam.FlatMap(list)",
        "tests/test_start_pipelines.py::test_releases_are_sorted",
    ),
    # What a repeat at no cost must be
    Mutant(
        "accounts",
        "a repeat is free though it released something else",
        "beam_dpcount/commands/repeats.py",
        "    return common in earlier and earlier[common] == _digest(task, common)\n",
        "    return common in earlier\n",
        "tests/test_account.py::test_a_repeat_that_releases_something_else_costs_its_budget[ticks]",
    ),
    Mutant(
        "accounts",
        "a repeat is free though what it released cannot be compared",
        "beam_dpcount/commands/repeats.py",
        "    if not earlier:\n        return False\n",
        "    if not earlier:\n        return True\n",
        "tests/test_account.py::test_digests_of_releases_tell_what_was_released_up_to_each_tick",
    ),
    Mutant(
        "accounts",
        "noise is drawn again for rows that have changed",
        "beam_dpcount/budget/account.py",
        "            if noise and run.noise == noise and not (files and counted == files):\n",
        "            if noise and run.noise == noise and not files:\n",
        "tests/test_account.py::"
        "test_the_same_noise_is_never_drawn_for_rows_that_have_changed[ticks]",
    ),
    Mutant(
        "accounts",
        "an account takes the digest of rows that changed while they were counted",
        "beam_dpcount/budget/account.py",
        "            counted = None if run.changed else ",
        "            counted = ",
        "tests/test_account.py::test_an_input_that_changes_during_a_run_is_no_replay",
    ),
    # What pipelines are charged
    Mutant(
        "accounts",
        "a transform that is applied is not charged",
        f"{_BUDGET}/ledger.py",
        "            if self._entries is not None:\n",
        "            if self._entries is not None and by is None:\n",
        "tests/test_entries.py::test_it_is_charged_when_a_transform_is_applied[at_clock]",
    ),
    Mutant(
        "accounts",
        "a pipeline is charged when it has run",
        f"{_BUDGET}/ledger.py",
        "                self._entries.enter(by, share.budget, float_up(asked), spender)\n",
        "                late = by, share.budget, float_up(asked), spender\n"
        "                weakref.finalize(self, self._entries.enter, *late)\n",
        "tests/test_entries.py::test_it_is_charged_before_anything_runs[at_clock]",
    ),
    Mutant(
        "accounts",
        "a pipeline that starts anew under the same id is free, though its noise is new",
        f"{_BUDGET}/entries.py",
        "again = self._continued(account, run_id, claim) if self.resumes else None",
        "again = account.continued(run_id, claim, self.continued)",
        "tests/test_entries.py::test_an_id_that_starts_anew_is_charged_anew",
    ),
    Mutant(
        "accounts",
        "a pipeline draws the same replayable noise for rows that nobody compares",
        f"{_BUDGET}/entries.py",
        "spender.user, allowed, why, noise)",
        'spender.user, allowed, why, "")',
        "tests/test_entries.py::test_the_same_replayable_noise_is_refused",
    ),
    Mutant(
        "accounts",
        "two transforms go on from one state",
        f"{_BUDGET}/entries.py",
        "return account.continued(run_id, claim, self.continued)",
        "return account.continued(run_id, claim, ())",
        "tests/test_entries.py::test_what_is_not_the_same_does_not_go_on",
    ),
    Mutant(
        "accounts",
        "a transform with other parameters goes on at no cost",
        f"{_BUDGET}/entries.py",
        "keys_delta, spender.fingerprint, noise,",
        "keys_delta, noise,",
        "tests/test_entries.py::test_what_is_not_the_same_does_not_go_on",
    ),
    Mutant(
        "accounts",
        "columns that a pipeline does not name are none",
        f"{_BUDGET}/entries.py",
        "return {UNKNOWN} if columns is None else",
        "return set() if columns is None else",
        "tests/test_entries.py::test_columns_that_have_no_names_conflict_with_all_others",
    ),
    Mutant(
        "accounts",
        "a count per element publishes nothing to an account",
        f"{_TRANSFORMS}/counting.py",
        "    _at_clock: ClassVar[bool] = False",
        "    _at_clock: ClassVar[bool] = True",
        "tests/test_entries.py::test_every_transform_is_charged[PrefixCount-pure]",
    ),
    Mutant(
        "accounts",
        "of a ledger of epsilon and delta an account is charged a share's nothing",
        f"{_BUDGET}/entries.py",
        "        whole, why = spender.charges(self.budget, 0.0, account)\n",
        '        whole, why = self.charged, ""\n',
        "tests/test_entries.py::"
        "test_shares_of_zcdp_have_no_epsilon_so_their_ledger_is_charged_whole",
    ),
)
