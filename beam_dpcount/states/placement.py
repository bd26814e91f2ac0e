"""Into which public shard a key or a person goes: the same on every worker, in every version."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.states.all_shards import shard_of


@dataclass(frozen=True)
class Placement:
    """Spreads people over shards.

    Where noise comes from a secret, a key derived from it places people, so that nobody can choose
    ids that fall into one shard. Never another key in each worker or submission: all people would
    move, and count again. So without a secret there is no key.

    Args:
      shards: how many; fixed for the life of a state.
      entropy: where the secret is; None: there is none.
    """

    shards: int
    entropy: Entropy | None = None

    @property
    def _key(self) -> bytes:
        return b"" if self.entropy is None else self.entropy.placement_key

    @property
    def fingerprint(self) -> str:
        """Tells keys apart, and is none; where the secret can be read."""
        key = self._key
        return hashlib.blake2b(key, digest_size=8).hexdigest() if key else "unkeyed"

    def finder(self) -> Callable[[str], int]:
        """What gives the shard of a person; where the secret can be read, and never pickled."""
        key, shards = self._key, self.shards
        if not key:
            return lambda person: shard_of(person, shards)

        def keyed(person: str) -> int:
            digest = hashlib.blake2b(person.encode(), digest_size=8, key=key).digest()
            return int.from_bytes(digest, "little") % shards

        return keyed
