"""A cell that holds live state, which its coder makes bytes of when a bundle ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apache_beam.coders import Coder
from apache_beam.runners.worker.statecache import CacheAware

from beam_dpcount.mechanisms.base import State


class Kept(CacheAware):
    """What a cell holds of a key, as it is: its coder makes bytes of it when a bundle ends.

    It is changed in place by the bundle that made it, and by no other: one that fails is taken
    again from what was there before, and runners keep that.
    """

    __slots__ = ("_pack", "bundle", "digest", "memory", "state")

    def __init__(
        self,
        pack: Callable[[State, bytes, Any], bytes],
        bundle: object,
        state: State,
        digest: bytes,
        memory: Any,
    ) -> None:
        self._pack, self.bundle = pack, bundle
        self.state, self.digest, self.memory = state, digest, memory

    def packed(self) -> bytes:
        """The bytes of it."""
        return self._pack(self.state, self.digest, self.memory)

    def get_referents_for_cache(self) -> list[Any]:
        """What a runner that measures its cache is to measure: not the codec."""
        return [self.state, self.digest, self.memory]

    def __reduce__(self) -> Any:
        raise TypeError("this holds exact sums, and is never pickled: its coder makes bytes of it")


class KeptCoder(Coder):
    """Encodes `Kept`; decodes to bytes, which the DoFn opens, as it knows the codec.

    A runner encodes once a key and bundle. Without it, each element would pay for it.
    """

    def encode(self, value: Any) -> bytes:
        return value if type(value) is bytes else value.packed()

    def decode(self, encoded: bytes) -> bytes:
        return encoded

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return Any
