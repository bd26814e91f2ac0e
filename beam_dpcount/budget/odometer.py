"""An odometer of columns: what is left of the claims of several runs over the same rows.

A run treats some columns as public: its releases may show them as they are. Others it protects.
What one run protects and another one publishes is not protected at all, whatever either of them
costs. Names are compared, and names alone: a copy of a column under another name, nested in
another one or computed from it, is not found.

A claim is (relation, unit, columns). As long as no run publishes that a row is there, it is about a
row (or all rows of a person) being there or not. Once one does, what is left is that the claimed
cells of that row may say anything else, all else equal: a removal and an addition.
See docs/privacy.md, "Several runs over the same rows".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

PRESENCE = ":presence"  # that a row is there, with its place and time
UNKNOWN = ":unknown"  # columns without a name: what a function computes, and runs of old accounts
MEANINGS = {PRESENCE: "that a row is there", UNKNOWN: "columns that nobody knows"}


def column(name: str) -> str:
    """A column of the input as an odometer names it; those of its own begin with one colon."""
    return f":{name}" if name.startswith(":") else name


def ordered(columns: Iterable[str]) -> list[str]:
    """Columns in the order in which they are shown: the odometer's own come first."""
    return sorted(columns, key=lambda name: (name not in MEANINGS, name))


@dataclass(frozen=True)
class ColumnUse:
    """The columns that a run treats as public, and those that it protects.

    Args:
      public: all that decide which rows count and in which step: the key, the time, the order, the
        row's id, a filter, per element whose a row is. To publish any is to publish that a row is
        there: PRESENCE is added.
      protected: what neighbours may differ in.
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

    def meets(self, other: ColumnUse) -> frozenset[str]:
        """The columns that one of the two publishes and the other one protects.

        Columns without a name meet everything: where they do, UNKNOWN is one of them.
        """
        named = self.public & other.protected | other.public & self.protected
        if self.is_known and other.is_known:
            return named
        both = (self.public and other.protected) or (other.public and self.protected)
        return named | ({UNKNOWN} if both else set())


@dataclass(frozen=True)
class Odometer:
    """What runs, by number, leave of each other's claims. Their order does not matter."""

    uses: Mapping[int, ColumnUse]

    @cached_property
    def public(self) -> frozenset[str]:
        return frozenset().union(*(use.public for use in self.uses.values()))

    @cached_property
    def protected(self) -> frozenset[str]:
        return frozenset().union(*(use.protected for use in self.uses.values()))

    @cached_property
    def claimed(self) -> frozenset[str]:
        """The columns of which something is still claimed."""
        named = self.protected - self.public - {UNKNOWN}
        return named | ({UNKNOWN} if self._unnamed_holds() else set())

    def _unnamed_holds(self) -> bool:
        """Whether a column without a name is protected, and no other run publishes anything."""
        unnamed = [n for n, use in self.uses.items() if UNKNOWN in use.protected]
        public = {n for n, use in self.uses.items() if use.public}
        return bool(unnamed) and all(public <= {n} for n in unnamed)

    @property
    def lost(self) -> frozenset[str]:
        """The columns that some run protects, and of which nothing is claimed any more."""
        return self.protected - self.claimed

    @property
    def lost_to(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]]:
        """The same, by the runs that protect them and those that publish them."""
        names: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
        for name in ordered(self.lost):
            by = tuple(n for n, use in self.uses.items() if name in use.protected)
            any_is = name == UNKNOWN
            to = (
                n for n, use in self.uses.items() if name in use.public or (any_is and use.public)
            )
            names.setdefault((by, tuple(to)), []).append(name)
        return names

    @property
    def is_of_replacement(self) -> bool:
        """Whether a run was to protect that a row is there, and another one publishes it."""
        return PRESENCE in self.protected & self.public

    @property
    def unknown(self) -> list[int]:
        """The runs that may publish columns nobody knows of."""
        return [n for n, use in self.uses.items() if UNKNOWN in use.public]

    def meeting(self, use: ColumnUse) -> dict[str, list[int]]:
        """The columns at which another run would meet these, and which of them.

        One that it publishes meets nothing where nothing is claimed of it any more.
        """
        met: dict[str, list[int]] = {}
        gone = self.lost - use.protected - {UNKNOWN}
        for number, other in self.uses.items():
            for name in use.meets(other) - gone:
                met.setdefault(name, []).append(number)
        return {name: met[name] for name in ordered(met)}

    def with_run(self, number: int, use: ColumnUse) -> Odometer:
        return Odometer({**self.uses, number: use})


def listed(items: Collection[object], empty: str = "none") -> str:
    """Names or numbers in a sentence."""
    return ", ".join(map(str, items)) or empty


def runs(numbers: Collection[int]) -> str:
    """Runs in a sentence."""
    return f"run{'s' * (len(numbers) != 1)} {listed(numbers)}"
