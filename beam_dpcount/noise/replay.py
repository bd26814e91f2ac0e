"""Replayable noise: a function of a secret and of all that a release depends on.

Replayed work, or a job that is run again, then gives the same releases for the same history, at no
cost: nothing new is seen. Noise z_i is drawn from

  PRF(secret; noise format, run id, label, all parameters, key, window, history, law, i)

where history is a keyed digest of the (public id, value) of every element of the stream, the last
one included that row i of R x depends on. A digest without the current input, or a parameter, would
give two different inputs the same noise, and show their exact difference. Two counts of one name
would share noise while their histories agree, and show that they do.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from beam_dpcount.errors import SecretError
from beam_dpcount.noise.entropy import Draws, Entropy, Noise
from beam_dpcount.noise.laws import Law
from beam_dpcount.noise.tables import IntArray

# Raised whenever a seed would give other noise, or a history another R x: to count differently
# under the same noise would show the exact difference.
NOISE_FORMAT = 1
DIGEST_SIZE = 16
NO_ID = object()  # where there is no element; a missing field gives None
_LEAST_SECRET, _LEAST_DIFFERENT = 32, 8
_MAKE = 'make one with: python -c "import secrets; print(secrets.token_hex(32))"'


class ReplayableEntropy(Entropy):
    """Noise that is the same whenever the same history of a stream is counted again.

    Args:
      variable: the environment variable that holds the secret, on every worker: 32 characters or
        more, such as 64 random hexadecimal digits.
      key_file: or a file that holds it, readable on every worker.
      run_id: public; names this count of these data. Another one gives other noise; it is needed
        for another count of the same keys, in another pipeline, with the same secret, and where
        data that have changed are counted again.

    The secret is read where it is used, and is in no pickle, repr, log or annotation.

    Guarantee: to one who does not know the secret, and as far as keyed BLAKE2b and SHAKE256 are
      pseudo-random, releases of one history are as with `SystemEntropy`, and cost their budget once
      however often they are seen. r runs that share their first steps and diverge at a public point
      cost at most r budgets. Every element needs a unique public id, or a replay in another order
      would be equal where values are. At ticks, a replay in which other events are late is not
      covered: see TickCount. Whether two histories are equal is not protected: equal releases show
      it. Counting changed data, or another column of them, needs another secret or run_id. Within
      a pipeline the labels of transforms keep their noise apart.

    Raises:
      ValueError, TypeError: both or none of variable and key_file are given, or no text.
      SecretError: on a worker, where the secret is missing or too short.
    """

    is_replayable = True

    def __init__(
        self,
        variable: str | None = None,
        *,
        run_id: str,
        key_file: str | os.PathLike[str] | None = None,
    ) -> None:
        if (variable is None) == (key_file is None):
            example = 'ReplayableEntropy("COUNTING_SECRET", run_id="purchases, May")'
            raise ValueError(f"give the secret's environment variable, or key_file: e.g. {example}")
        key_file = None if key_file is None else os.fspath(key_file)
        for name, text in (("variable", variable), ("key_file", key_file), ("run_id", run_id)):
            if not isinstance(text, str) and (text is not None or name == "run_id"):
                raise TypeError(f"{name} must be text, got {type(text).__name__}")
        # What was given is not shown: a mistaken call may pass the secret itself.
        mistaken = "replayable noise takes the {0}, not a secret: put the secret there"
        if variable is not None and (not variable.isidentifier() or len(variable) >= _LEAST_SECRET):
            raise ValueError(mistaken.format("name of an environment variable"))
        if key_file is not None and re.fullmatch(r"[\w+-]{32,}={0,2}", key_file.strip()):
            raise ValueError(mistaken.format("path of a file"))
        self._variable, self._key_file = variable, key_file
        self._run_id = str.__str__(run_id)
        self._name = ""

    def named(self, name: str) -> ReplayableEntropy:
        made = copy(self)
        made._name = name
        return made

    def source(self, law: Law, dimension: int | None) -> Callable[[str, Any], Noise]:
        """Refused: replayable noise needs a history, and comes from `replay`."""
        raise TypeError("replayable noise is drawn through ReplayableEntropy.replay")

    def replay(self, law: Law, dimension: int | None, parameters: str) -> Replay:
        """The noise of one counter, for this process only; arguments as for `draws`."""
        whole = ascii((NOISE_FORMAT, self._run_id, self._name, parameters, law, dimension))
        return Replay(self._secret(), whole, law, dimension)

    def draws(self, law: Law, dimension: int | None, parameters: str) -> Draws:
        return ReplayedDraws(self.replay(law, dimension, parameters))

    def check(self) -> None:
        """Raise SecretError unless the secret can be read here."""
        self._secret()

    def mark(self, text: str) -> str:
        """A keyed digest of a text: equal texts have equal ones under one secret, and without the
        secret it says nothing of the text."""
        key = _key(self._secret(), b"account", "")
        return hashlib.blake2b(text.encode(), digest_size=32, key=key).hexdigest()

    @property
    def run_id(self) -> str:
        return self._run_id

    @property
    def noise_mark(self) -> str:
        return self.mark(ascii(("noise", self._run_id, self._name)))

    @property
    def placement_key(self) -> bytes:
        # Of the secret alone: a state goes on under another run id.
        return _key(self._secret(), b"placement", "")

    def _secret(self) -> bytes:
        if self._variable is not None:
            where = f"of environment variable {self._variable}"
            # The bytes as they are: an error of decoding would carry them along.
            secret = os.fsencode(os.environ.get(self._variable, "")).strip()
        else:
            where = f"of file {self._key_file}"
            try:
                secret = Path(self._key_file or "").read_bytes().strip()
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or type(error).__name__
                raise SecretError(f"the secret {where} cannot be read here: {reason}") from None
        if len(secret) < _LEAST_SECRET:
            state = "not set here" if not secret else f"shorter than {_LEAST_SECRET} characters"
            remedy = _MAKE if secret else f"set the one that earlier runs used, or {_MAKE}"
            raise SecretError(f"the secret {where} is {state}: {remedy}")
        if len(set(secret)) < _LEAST_DIFFERENT:
            raise SecretError(f"the secret {where} is easily guessed: {_MAKE}")
        return secret

    def __repr__(self) -> str:
        place = repr(self._variable) if self._variable else f"key_file={self._key_file!r}"
        return f"ReplayableEntropy({place}, run_id={self._run_id!r})"


class StateEntropy(ReplayableEntropy):
    """Replayable noise whose secret lives in the state of a count, for this process only.

    A state that is restored over the same rows then repeats its noise to the bit.

    Args:
      secret: 32 bytes of the system's own randomness, drawn once, when the state is made.
      run_id: public; of the state.

    Guarantee: as that of `ReplayableEntropy`, to one who has not seen the state.
    """

    def __init__(self, secret: bytes, run_id: str) -> None:
        super().__init__("STATE", run_id=run_id)
        self._own = secret

    def _secret(self) -> bytes:
        if len(self._own) < _LEAST_SECRET:
            raise SecretError("the secret of the state is too short: restore the state")
        return self._own

    def __copy__(self) -> StateEntropy:
        return StateEntropy(self._own, self._run_id)

    def __reduce__(self) -> Any:
        raise TypeError("the secret of a state does not leave its process")

    def __repr__(self) -> str:
        return f"StateEntropy(run_id={self._run_id!r})"


class Replay:
    """Digests of histories, and the noise that follows from them. Holds keys: never pickled.

    A digest may be in state, next to the exact sums: without the secret it gives no noise.
    """

    digest_size = DIGEST_SIZE

    def __init__(self, secret: bytes, parameters: str, law: Law, dimension: int | None) -> None:
        self._histories = _key(secret, b"history", parameters)
        self._noises = _key(secret, b"noise", parameters)
        self._law, self._dimension = law, dimension
        self._laws: dict[Law, tuple[bytes, Any]] = {}
        self._own = self.of_law(law)

    def begin(self, key: str, window: object) -> bytes:
        bounds = [getattr(window, name, None) for name in ("start", "end")]
        # Plain text, as a subclass may print otherwise; ASCII, as Pythons differ in what prints.
        place = ascii((str.__str__(key), type(window).__name__, *(b and b.micros for b in bounds)))
        return self.follow(bytes(DIGEST_SIZE), NO_ID, place.encode())

    def follow(self, digest: bytes, identity: object, value: bytes) -> bytes:
        """The digest of a history and one more element, of this public id (or NO_ID) and value."""
        data = digest + value
        if identity is not NO_ID:
            name = _named(identity).encode()
            data += b"".join((name, len(name).to_bytes(8, "little")))
        return hashlib.blake2b(data, digest_size=DIGEST_SIZE, key=self._histories).digest()

    def noise(self, digest: bytes) -> HistoryNoise:
        return HistoryNoise(self, digest, self._law, self._dimension, self._own)

    def of_keys(self, digest: bytes, keys: int) -> HistoryNoise:
        """The same of a vector of so many keys."""
        return HistoryNoise(self, digest, self._law, keys, self._own)

    def of_law(self, law: Law) -> tuple[bytes, Any]:
        """The key of a law's noise, and `law.first()`."""
        if law not in self._laws:
            self._laws[law] = _key(self._noises, b"law", repr(law)), law.first()
        return self._laws[law]

    def __reduce__(self) -> Any:
        raise TypeError("this holds a secret, and is never pickled: pickle the ReplayableEntropy")


class ReplayedDraws(Draws):
    """`Draws` that follow from the history of each step."""

    digest_size = DIGEST_SIZE

    def __init__(self, replay: Replay) -> None:
        self.begin, self.follow = replay.begin, replay.follow  # type: ignore[method-assign]
        self._replay = replay

    def noise(self, key: str, window: object, digest: bytes) -> Noise:
        return self._replay.noise(digest)

    def of_keys(self, keys: Sequence[str], window: object, digest: bytes) -> Noise:
        return self._replay.of_keys(digest, len(keys))


class HistoryNoise:
    """The noise of one step: each coordinate a function of the history up to and with that step."""

    def __init__(
        self, replay: Replay, digest: bytes, law: Law, dimension: int | None, keyed: Any
    ) -> None:
        self._replay, self._digest, self._law, self._dimension = replay, digest, law, dimension
        self._key, self._first = keyed

    def one(self, coordinate: int) -> Any:
        data = self._digest + coordinate.to_bytes(8, "little")
        seed = hashlib.blake2b(data, key=self._key).digest()
        if self._dimension is not None:
            return self._law.sample(self._dimension, Expansion(seed))
        value = self._first(seed)
        return int(self._law.sample(1, Expansion(seed))[0]) if value is None else value

    def draw(self, first: int, n: int) -> IntArray:
        shape = (n,) if self._dimension is None else (n, self._dimension)
        drawn = [self.one(coordinate) for coordinate in range(first, first + n)]
        return np.array(drawn, dtype=np.int64).reshape(shape)

    def for_law(self, law: Law) -> HistoryNoise:
        keyed = self._replay.of_law(law)
        return HistoryNoise(self._replay, self._digest, law, self._dimension, keyed)


class StepNoises:
    """The noise of many steps at once, for mechanisms that draw coordinates in their order.

    Coordinate i takes the noise of the first step t with draws(t) >= i.
    """

    def __init__(self, noises: Iterator[Noise], draws: Callable[[int], int]) -> None:
        self._noises, self._draws = noises, draws
        self._step, self._drawn = 0, 0

    def one(self, coordinate: int) -> Any:
        while self._drawn < coordinate:
            self._step += 1
            self._noise, self._drawn = next(self._noises), self._draws(self._step)
        return self._noise.one(coordinate)

    def draw(self, first: int, n: int) -> IntArray:
        return np.array([self.one(i) for i in range(first, first + n)], dtype=np.int64)


class Expansion:
    """A source of bytes: a seed of 64 bytes itself, then as many more as are asked for."""

    def __init__(self, seed: bytes) -> None:
        self._seed, self._left, self._blocks = seed, seed, 0

    def __call__(self, n: int) -> bytes:
        if n > len(self._left):
            block = self._blocks.to_bytes(8, "little")
            more = hashlib.shake_256(self._seed + block).digest(max(n, 256))
            self._left, self._blocks = self._left + more, self._blocks + 1
        taken, self._left = self._left[:n], self._left[n:]
        return taken


def _named(identity: object) -> str:
    """A public id as a text that tells it from all others, in every process the same."""
    if isinstance(identity, tuple):
        return f"({''.join(_named(part) + ',' for part in tuple.__iter__(identity))})"
    if isinstance(identity, np.bool_ | np.integer | np.floating) and identity.itemsize <= 8:
        identity = identity.item()
    if isinstance(identity, str):
        return ascii(str.__str__(identity))
    if type(identity) in (int, bytes, float, bool):
        return repr(identity)
    raise TypeError(
        f"element_id gave {type(identity).__name__}, but replayable noise takes ids that are text, "
        "bytes, numbers or tuples of these: convert it, e.g. by str(), and give every element one"
    )


def _key(secret: bytes, purpose: bytes, parameters: str) -> bytes:
    # Hashed first: keys of BLAKE2b are of 64 bytes at most, and are padded with zeros.
    root = hashlib.blake2b(secret, digest_size=64, person=b"beam_dpcount").digest()
    return hashlib.blake2b(parameters.encode(), digest_size=32, key=root, person=purpose).digest()
