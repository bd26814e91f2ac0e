"""What all counts at the ticks of a clock say of their ticks and keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from beam_dpcount.commands import options as opt
from beam_dpcount.commands import select
from beam_dpcount.commands.files import formats
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.report import many
from beam_dpcount.commands.task import Listed, Task
from beam_dpcount.counters.grid import Grid
from beam_dpcount.statistics.items import places as places_of
from beam_dpcount.statistics.items import read_items

if TYPE_CHECKING:
    from beam_dpcount.counters.selection import Selection


class AtTicks(Task):
    """Of rows at the ticks of a public clock."""

    name = "ticks"
    known = "the keys and the clock, and with them the number and times of the releases."
    people_are_public = False
    names: ClassVar[Mapping[str, str]] = select.NAMES
    count: Any  # the transform
    keys: list[str]  # that are listed

    @property
    def engine(self) -> Any:
        """What counts, or one of several that do."""
        return self.count

    @property
    def counts_with(self) -> Any:
        """The calibrated counter."""
        return self.engine.counter

    @property
    def grid(self) -> Grid:
        """All ticks of the clock."""
        grid: Grid = self.engine.clock
        return grid

    def _check_keys(self) -> None:
        options = self.options
        which = ("keys", "keys_file", "select_keys", "separator")
        given = [name for name in which if getattr(options, name) not in (None, False)]
        if options.key is None and given:
            raise InputError(
                f"{opt.option(given[0])} needs --key COLUMN, which has the keys; without --key all "
                "rows are one count"
            )
        if options.key is not None and given in ([], ["separator"]):
            raise InputError(
                f"--key {options.key} needs the keys: give --keys KEY ... or --keys-file FILE if "
                "they are public, or --select-keys; without --key all rows are one count"
            )

    @property
    def selection(self) -> Selection | None:
        """When keys are shown, in what is in use; None where they are listed."""
        return self.count.selection

    @property
    def _lists_keys(self) -> bool:
        """Whether rows of other keys are left out."""
        return self.options.key is not None and self.selection is None

    def listed(self) -> Listed | None:
        if not self.keys or self.options.key is None:
            return None
        separator, most = self.options.separator, self.options.max_items

        def keys(key: str, _: formats.Event) -> list[str]:
            return [key] if separator is None else key.split(separator)

        return Listed("--keys", self.keys, keys, most)

    def _not_ended(self) -> list[str]:
        """A note on ticks that are not released because they have not ended."""
        left, open_ticks = self.count.ticks_left, self.engine.ticks_open
        if self.options.path == "streaming" and open_ticks:
            ticks = self.steps
            return [
                "note: --path streaming takes the end of the files for the end of the clock: all "
                f"{many(ticks, 'tick')} are written, also those that have not ended "
                f"({ticks - open_ticks:,} have); leave it out to write only those that have"
            ]
        if not left:
            return []
        note = f"note: ticks that have ended by {self.engine.cutoff} (--until) are written; "
        note += f"the other {left:,} are charged as well"
        if self.options.secret_env is not None or self.options.secret_file is not None:
            note += "; a later run over the same rows repeats those and adds more, at no cost"
        return [note]

    def _ticks(self) -> str:
        """How many ticks are released, in words."""
        if not self.count.ticks_left:
            return many(self.counter.mechanism.horizon, "tick")
        return f"{self.count.ticks_released:,} of {many(self.counter.mechanism.horizon, 'tick')}"

    @cached_property
    def _shown(self) -> int | None:
        """How many keys were written, as whoever has the file can tell; None where it is afar."""
        try:
            return self.output.written_keys()
        except InputError:
            return None

    def budget(self) -> str:
        if self.selection is None:
            return super().budget()
        return select.budget_in_words(self.given, self.selection)

    def covers(self) -> str:
        if self.options.key is None:
            return ""
        return f"of all keys{', and which keys have any,' if self.selection else ''} "

    def public(self) -> str:
        if self.options.key is None:
            return "the clock, and with it the number and times of the releases."
        if self.selection is None:
            return self.known
        return "the clock, and which private counts show a key, but not which keys there are."

    def written(self) -> str:
        keys = len(self.keys) if self.selection is None else self._shown
        if keys is None:
            return f"{super().written()} ({self._ticks()})"
        shown = "" if self.selection is None else " shown"
        return f"{super().written()} ({many(keys, 'key')}{shown}, {self._ticks()})"

    def released_ticks(self) -> dict[str, Any]:
        count = self.count
        if self.options.path == "streaming":
            return {}
        ticks = {"released": count.ticks_released, "of": count.counter.mechanism.horizon}
        return {"until": count.cutoff, "ticks": ticks}

    @property
    def releases_nothing(self) -> bool:
        return self.options.path != "streaming" and not self.count.ticks_released

    @property
    def ticks_released(self) -> int | None:
        return None if self.options.path == "streaming" else self.count.ticks_released

    def findings(self) -> list[str]:
        if self.releases_nothing:
            return ["no tick has ended yet, so none is written: run again once one has"]
        if self.selection is None or self._shown != 0:
            return []
        return ["no key was shown: the private count of none was high enough"]

    def streams(self) -> int:
        return 1 if self.selection is not None else len(self.keys)


class SplitKeys:
    """From an event under a cell of several keys to the event under each of them.

    At most the first `most` in the order of the public keys; others leave no trace.
    """

    def __init__(self, keys: Sequence[str], separator: str, most: int) -> None:
        self._keys, self._known = keys, places_of(keys)
        self._separator, self._most = separator, most

    def __call__(self, element: tuple[str, formats.Event]) -> Iterator[tuple[str, formats.Event]]:
        cell, event = element
        codes, _ = read_items(cell.split(self._separator), self._known, self._most, removals=False)
        return ((self._keys[code - 1], event) for code in codes)


class SplitCells:
    """From an event under a cell of several keys to the event under each of them.

    At most the first `most` of the cell, each once.
    """

    def __init__(self, separator: str, most: int) -> None:
        self._separator, self._most = separator, most

    def __call__(self, element: tuple[str, formats.Event]) -> Iterator[tuple[str, formats.Event]]:
        cell, event = element
        keys = dict.fromkeys(cell.split(self._separator))
        return ((key, event) for key in islice(keys, self._most))
