"""The errors and warnings that users catch or silence."""

from __future__ import annotations

__all__ = [
    "CheckError",
    "HorizonError",
    "NotANumberError",
    "OverspentError",
    "RunnerError",
    "RunnerWarning",
    "SecretError",
    "WeakBudgetWarning",
]


class Error(Exception):
    """The base class of this package's errors; the others derive from it and from a built-in one.

    So `except ValueError` still catches what is a ValueError. Wrong arguments may also be refused
    with a plain ValueError or TypeError.
    """


class CheckError(Error, ValueError):
    """A row stopped `check`: a function raised, or the transform does not take such rows."""


class HorizonError(Error, ValueError):
    """A step beyond the declared horizon: nothing more may be released, and `step` raises this."""


class NotANumberError(Error, ValueError):
    """An input that is not a number. The message never shows it."""


class OverspentError(Error, ValueError):
    """More than is left: of a ledger, or of the account that it is charged to."""


class RunnerError(Error, ValueError):
    """A runner on which the guarantee is known not to hold, or about which nothing is known."""


class RunnerWarning(UserWarning):
    """A runner that was not tested, but is built to keep what the guarantee rests on."""


class SecretError(Error, ValueError):
    """The secret of replayable noise is missing or too short. The message never shows it."""


class WeakBudgetWarning(UserWarning):
    """A budget protects little. Given once for a budget, before anything runs.

    It is weak from epsilon = 3, delta = 1e-5 or rho = 0.18 on. Transforms and ledgers warn;
    `calibrate`, which may get a share, does not. To silence it:
    `warnings.filterwarnings("ignore", category=beam_dpcount.errors.WeakBudgetWarning)`.
    """
