"""Arguments as text says them: YAML reads 1e-6 as text, and yes as a truth value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from numbers import Real
from typing import Any

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.noise.replay import ReplayableEntropy
from beam_dpcount.times import is_number

Number = int | float


def number(name: str, given: Any) -> Any:
    """A number, as such or as text; None stays None.

    Raises:
      TypeError: it is neither; a truth value, which YAML makes of yes and on, is not a number.
    """
    if given is None or (isinstance(given, Real) and given is not True and given is not False):
        return given
    text = given.strip().replace("_", "") if isinstance(given, str) else ""
    if not is_number(text):
        raise TypeError(f"{name} must be a number, or text that is one, got {given!r}: give e.g. 1")
    exact = Fraction(text)
    return int(exact) if exact.denominator == 1 else float(text)


def length(name: str, given: Any) -> Any:
    """A length of time as transforms take it: text, such as 1h, as it is; None stays None."""
    return given if isinstance(given, str) else number(name, given)


def moment(name: str, given: Any) -> Any:
    """A time, as TickCount takes it; text may be a number."""
    if isinstance(given, str):
        return Fraction(given.strip()) if is_number(given.strip()) else given
    if isinstance(given, date) and not isinstance(given, datetime):
        raise TypeError(
            f"{name} is a day without a time, {given}: give a text such as "
            f'"{given}T00:00:00Z", in quotes'
        )
    return given


def budget(epsilon: Any, delta: Any, rho: Any) -> Budget:
    """The budget that the numbers say."""
    epsilon, delta, rho = number("epsilon", epsilon), number("delta", delta), number("rho", rho)
    if rho is not None:
        if epsilon is not None or delta is not None:
            raise ValueError("give either rho, or epsilon with delta, not both")
        return ZCDP(rho)
    if epsilon is None:
        raise ValueError("give a budget: epsilon: 1 and delta: 1e-6, or epsilon: 1, or rho: 0.1")
    return PureDP(epsilon) if delta is None else ApproxDP(epsilon, delta)


def texts(name: str, given: Any) -> list[str]:
    """Public names; whole numbers are their digits.

    Raises:
      TypeError: one is something else, such as the truth value that YAML makes of no.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"{name} must be a list of texts, got {given!r}: give e.g. [home, cart]")
    made = []
    for each in given:
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise TypeError(
                f"{name} must be a list of texts, but it holds {each!r}: put it in quotes (without "
                "them YAML reads yes, no, on, off as truth values, and 1.0 as a number)"
            )
        made.append(str(each))
    return made


def name(given: Any) -> Any:
    """A public name; a whole number is its digits. All else stays, and is refused."""
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


def select(keys: Any, given: Any) -> list[str] | SelectKeys:
    """The listed keys; or SelectKeys, with these options."""
    if keys is not None and given:
        raise ValueError("give either keys or select_keys, not both")
    if keys is not None:
        return texts("keys", keys)
    if given is True:
        return SelectKeys()
    if isinstance(given, dict):
        known = ("delta", "every", "at_least", "shards")
        for name in given:
            if name not in known:
                raise ValueError(f"select_keys has no {name!r}: it takes {', '.join(known)}")
        return SelectKeys(**{name: number(f"select_keys.{name}", n) for name, n in given.items()})
    raise ValueError("give keys, a list; or select_keys: true, where nobody can list them")


def entropy(secret_env: Any, secret_file: Any, run_id: Any, read: Mapping[str, Any]) -> Any:
    """Replayable noise where there is a secret; None: the system's.

    Args:
      secret_env, secret_file, run_id: as for ReplayableEntropy.
      read: by argument, which fields are read, and how: where others are, noise is another.
    """
    if secret_env is None and secret_file is None:
        if run_id is not None:
            raise ValueError("run_id is for replayable noise: give secret_env or secret_file too")
        return None
    if run_id is None:
        raise ValueError("replayable noise needs run_id, which names this count of these data")
    if not isinstance(run_id, str):
        raise TypeError(f"run_id must be text, got {type(run_id).__name__}")
    # Without defaults, so that arguments of later versions do not change the noise.
    given = sorted((name, value) for name, value in read.items() if value is not None)
    whole = ascii((str.__str__(run_id), given))
    return ReplayableEntropy(secret_env, key_file=secret_file, run_id=whole)
