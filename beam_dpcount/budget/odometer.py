"""An odometer of columns: what can still be claimed after several runs over the same rows.

A run treats some columns as public: its releases may show them unchanged. It protects others. If
one run protects a column and another publishes it, the column is not protected at all, whatever
the two runs cost. Columns are compared by name only: a copy under another name, nested in another
column or computed from it, is not detected.

A claim consists of a relation, a unit and columns. As long as no run publishes that a row exists,
the claim is about adding or removing a row (or all rows of a person). Once a run does, it is only
about what the claimed cells of that row say: they may say anything else, all else equal. That is a
removal and an addition.
See docs/privacy.md, "Several runs over the same rows".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

PRESENCE = ":presence"  # that a row exists, with its place and time
UNKNOWN = ":unknown"  # columns without a name: computed by a function, or of old accounts
MEANINGS = {PRESENCE: "that a row exists", UNKNOWN: "columns that are not known"}


def column(name: str) -> str:
    """The odometer's name of an input column: only its own names begin with a single colon."""
    return f":{name}" if name.startswith(":") else name


def ordered(columns: Iterable[str]) -> list[str]:
    """Columns in the order in which they are shown: the odometer's own come first."""
    return sorted(columns, key=lambda name: (name not in MEANINGS, name))


@dataclass(frozen=True)
class ColumnUse:
    """The columns that a run treats as public, and those that it protects.

    Args:
      public: all columns that decide which rows count and in which step: the key, the time, the
        order, the row's id, a filter, and per element the person. To publish one of them is to
        publish that a row exists, so PRESENCE is added.
      protected: the columns in which neighbours may differ.
    """

    public: frozenset[str] = frozenset()
    protected: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.public:
            object.__setattr__(self, "public", frozenset(self.public) | {PRESENCE})
        object.__setattr__(self, "protected", frozenset(self.protected))

    @property
    def is_known(self) -> bool:
        """Whether all columns have names."""
        return UNKNOWN not in self.public | self.protected

    def conflicts_with(self, other: ColumnUse) -> frozenset[str]:
        """The columns that one of the two publishes and the other one protects.

        Columns without a name conflict with all columns. Then UNKNOWN is in the result.
        """
        named = self.public & other.protected | other.public & self.protected
        if self.is_known and other.is_known:
            return named
        both = (self.public and other.protected) or (other.public and self.protected)
        return named | ({UNKNOWN} if both else set())


@dataclass(frozen=True)
class Odometer:
    """What can still be claimed after several runs, by number. Their order does not matter."""

    uses: Mapping[int, ColumnUse]

    @cached_property
    def public(self) -> frozenset[str]:
        return frozenset().union(*(use.public for use in self.uses.values()))

    @cached_property
    def protected(self) -> frozenset[str]:
        return frozenset().union(*(use.protected for use in self.uses.values()))

    @cached_property
    def claimed(self) -> frozenset[str]:
        """The columns about which something is still claimed."""
        named = self.protected - self.public - {UNKNOWN}
        return named | ({UNKNOWN} if self._unnamed_holds() else set())

    def _unnamed_holds(self) -> bool:
        """Whether a column without a name is protected, and no other run publishes anything."""
        unnamed = [n for n, use in self.uses.items() if UNKNOWN in use.protected]
        public = {n for n, use in self.uses.items() if use.public}
        return bool(unnamed) and all(public <= {n} for n in unnamed)

    @property
    def lost(self) -> frozenset[str]:
        """The columns that some run protects, and about which nothing is claimed any more."""
        return self.protected - self.claimed

    @property
    def lost_to(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]]:
        """The lost columns, by the runs that protect them and those that publish them."""
        names: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
        for name in ordered(self.lost):
            protecting = tuple(n for n, use in self.uses.items() if name in use.protected)
            publishing = tuple(
                n
                for n, use in self.uses.items()
                if name in use.public or (name == UNKNOWN and use.public)
            )
            names.setdefault((protecting, publishing), []).append(name)
        return names

    @property
    def is_of_replacement(self) -> bool:
        """Whether one run protects that a row exists, and another one publishes it."""
        return PRESENCE in self.protected & self.public

    @property
    def unknown(self) -> list[int]:
        """The runs that may publish columns that are not known."""
        return [n for n, use in self.uses.items() if UNKNOWN in use.public]

    def conflicts(self, use: ColumnUse) -> dict[str, list[int]]:
        """The columns in which another run would conflict with these, and with which of them.

        It may publish a column about which nothing is claimed any more.
        """
        by_column: dict[str, list[int]] = {}
        free = self.lost - use.protected - {UNKNOWN}
        for number, other in self.uses.items():
            for name in use.conflicts_with(other) - free:
                by_column.setdefault(name, []).append(number)
        return {name: by_column[name] for name in ordered(by_column)}

    def with_run(self, number: int, use: ColumnUse) -> Odometer:
        return Odometer({**self.uses, number: use})


def listed(items: Collection[object], empty: str = "none") -> str:
    """Names or numbers in a sentence."""
    return ", ".join(map(str, items)) or empty


def runs(numbers: Collection[int]) -> str:
    """Runs in a sentence."""
    return f"run{'s' * (len(numbers) != 1)} {listed(numbers)}"


def with_runs(conflicts: Mapping[str, Collection[int]]) -> str:
    """Columns in conflict, and the runs that use them, in a sentence."""
    same: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in conflicts.items():
        same.setdefault(tuple(numbers), []).append(
            f"{name} ({MEANINGS[name]})" if name in MEANINGS else repr(name)
        )
    return "; ".join(f"{listed(names)} ({runs(numbers)})" for numbers, names in same.items())
