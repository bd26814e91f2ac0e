"""Private running histograms of an event log, one per key, a release after every event.

Reads CSV, JSON lines or Parquet, counts each row's item, out of a public domain, under its key, and
writes all private counts after every row: key, step, timestamp, a column for each item, stddev.
Rows of a key are taken in the order of their timestamps (ties: by file and row), or without
--timestamp in the order of the files. Without --key all rows have the key "all".
The keys, the domain and the number, order and times of the rows are public; the item of a row is
protected. A row whose item is not in the domain counts nothing, but has a release. An empty cell is
a key like others, and the item ''. A null in Parquet is not an item; as a key it stops the command.
With --fit-total such rows are counted too: they are what a line's counts leave of its step.
Options that --help-all does not list go to Beam, e.g. --runner.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import beam_dpcount as dp
from beam_dpcount.arguments.argument import parsed
from beam_dpcount.arguments.table import Changes
from beam_dpcount.commands import options as opt
from beam_dpcount.commands import report
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.figures.pictures import Bars, Panel
from beam_dpcount.commands.files.formats import Places, Source, Table, text, vectors
from beam_dpcount.commands.report import Estimate, many, unchecked
from beam_dpcount.commands.start import command
from beam_dpcount.commands.task import Listed, Task, texts_of

_BARS, _KEYS = 20, 6  # drawn


class Histogram(Task):
    """Of items out of a public domain."""

    name, heading = "histogram", "private histograms"
    known = "the domain, and the number, order and times of the rows."
    example = r"""
    beam-dpcount histogram --input out/demo/events.csv --item action \
      --domain view purchase --timestamp timestamp \
      --horizon 50000 --epsilon 1 --delta 1e-6 --output out/actions.parquet
    """

    counts = "elements items several people"
    own = (
        *parsed(
            "count",
            """
            fit_total: switch, more
                fit the counts of a release to the number of rows, which is public: their variance
                is 1 - 1/(d + 1) of what it is for d items; for one item a row, of a domain of two
                or more
            """,
        ),
        *parsed(
            "output",
            f"""
            top K: whole, uncounted, example={_BARS}, more
                draw the K items of the largest private counts, added up over the keys drawn, which
                biases them upwards (default: the first {_BARS} of the domain)
            """,
        ),
    )
    changes: ClassVar[Changes] = {
        "key": {"help": "the (public) keys; default: one for all"},
        "relation": {
            "help": "what is protected: that any one row has any other item (default), or that its "
            "item counts at all, which takes less noise"
        },
    }

    def check(self) -> None:
        super().check()
        options = self.options
        if options.fit_total and options.separator is not None:
            raise ValueError("--fit-total takes one item a row: leave out --separator")
        if options.fit_total and options.relation == "add_remove":
            problem = "--relation add_remove protects whether a row counts, and so how many do"
            raise ValueError(f"{problem}: leave it or --fit-total out")

    def source(self) -> Source:
        separator = self.options.separator
        measure = partial(split_items, separator) if separator else text
        return self.read([self.options.item], measure)

    def transform(self, places: Places) -> dp.Histogram:
        options = self.options
        opt.check_top(options)
        self.domain = self.listed_texts("domain", places.paths)
        self.columns = vectors(self.domain)
        return dp.Histogram(
            self.given,
            options.horizon,
            self.domain,
            max_items=opt.most_items(options, "--domain", self.domain),
            relation=options.relation,
            fit_total=options.fit_total,
            **self.shared(places),
        )

    def table(self) -> Table:
        return self.columns

    def listed(self) -> Listed:
        most = self.options.max_items
        return Listed("--domain", self.domain, lambda _, event: texts_of(event.value), most)

    def streams(self) -> int:
        return len(self.domain)  # with --fit-total the counter has one more, which is not written

    def notes(self) -> list[str]:
        options, domain = self.options, f"{many(len(self.domain), 'item')} of the domain"
        counted = f"its {options.item} to the letter, if that is one of the {domain}"
        if options.separator is not None:
            counted = (
                f"each item of its {options.item}, between {options.separator!r}, that is one of "
                f"the {domain} to the letter, up to the first {options.max_items:,} of them"
            )
        said = [f"note: a row counts 1 for {counted}", unchecked("items are", "their", self.domain)]
        if options.fit_total:
            rest = (
                "what the counts of a line leave of its step is that of rows without such an item"
            )
            said.append(f"note: fitted to the number of rows; {rest}")
            if len(self.domain) == 1:
                said.append(
                    "note: for one item --fit-total gains nothing, and may double the variance"
                )
        return [*said, *report.of_people(options, self.people_are_public)]

    def estimate(self) -> Estimate:
        options, left_out = self.options, ["items that are not of the domain"]
        if options.separator is None:
            what = "the true count of an item of the domain"
            return report.bounded(options, Estimate(what, "items of the domain", left_out))
        first = f"the first {options.max_items:,} items of the domain in a row"
        left_out.append(f"those of a row beyond its first {options.max_items:,} (--max-items)")
        return report.bounded(options, Estimate(f"the count of {first}", first, left_out))

    def picture(self) -> Bars:
        options, estimate, last = self.options, self.estimate(), self.output.last
        shown, choice = plot_keys.of_most_rows(options, last, _KEYS)
        by = f" by {options.key}" * bool(options.key)
        return Bars(
            title=f"Private histogram of {options.item}{estimate.in_title}{by}",
            covers=estimate.bars,
            remark=estimate.remark,
            choice=[*self._chosen(), *choice],
            keys=last.keys(),
            items=self.domain,
            panels=[Panel(name, note, row[:-1], row[-1]) for name, note, (row,) in shown],
            top=options.top,
            most=_BARS,
        )

    def _chosen(self) -> list[str]:
        """How the items that are drawn were chosen, and what that does to them."""
        options, items = self.options, len(self.domain)
        if options.top is None:
            first = f"Of {items:,} items the first {_BARS} of the domain."
            return [first] if items > _BARS else []
        if options.top >= items:
            return []
        over = "" if options.key is None else ", added up over the keys drawn"
        bound = dp.largest_error(self.counter, items)
        return [
            f"Of {items:,} items the {options.top:,} of the largest private counts{over}: as they "
            "were chosen for being large, they are biased upwards, and their error bars miss more "
            f"often; ± {bound:.3g} holds for all counts{' of a key' * bool(options.key)} at once, "
            "chosen or not, with probability 95 %."
        ]


def split_items(separator: str, cell: object) -> object:
    """The items of a cell that holds several; None for a null."""
    shown = text(cell)
    return None if shown is None else shown.split(separator)


main = command(Histogram)
