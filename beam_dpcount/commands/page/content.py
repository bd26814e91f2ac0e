"""What the report says beside its charts: pairs of a label and a text, out of options and facts.

All of it is public: the same sentences that the command prints, and the options it was given.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import beam_dpcount as dp
from beam_dpcount.budget.budgets import ZCDP, Budget, PureDP
from beam_dpcount.commands import options as opt
from beam_dpcount.commands import report

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

Pairs = list[tuple[str, str]]

_WRONG = 0.05  # how often the guess of `in_plain_words` is wrong one way
_LISTED = 20  # words of one option
_SHOWN = (
    "top",
    "all",
    "min_count",
    "until",
)  # options that do not change what is counted, and are shown all the same


def guarantee(task: Task) -> Pairs:
    """Who is protected from what, in parts of the sentence that the command prints."""
    budget = task.given
    beside = getattr(task.options, "select_delta", None) or 0.0
    return [
        ("It is for", f"{task.scope()}."),
        ("In plain words", in_plain_words(budget, beside)),
        ("What is public", f"{_capital(task.public())}"),
        ("The exact statement", task.guarantee()),
    ]


def in_plain_words(budget: Budget, beside: float = 0.0) -> str:
    """What a budget means to someone who guesses.

    Args:
      budget: of all releases together.
      beside: a probability that is spent beside it; an `ApproxDP` has it within.
    """
    most = math.ceil(100 * largest_power(budget, _WRONG, beside) - 1e-9)
    wrong = f"{100 * _WRONG:g}"
    return (
        "Say that someone knows all the data but for what is protected, and guesses from these "
        "numbers which of two ways that was. A rule of guessing that is wrong in "
        f"{wrong} of 100 cases of the one way is right in at most {most} of 100 cases of the "
        f"other; without these numbers it would be {wrong}."
    )


def largest_power(budget: Budget, wrong: float, beside: float = 0.0) -> float:
    """The largest probability to be right of a test that is wrong so often.

    Under (epsilon, delta)-DP a test that says "this way" with probability p where it was the other
    says so with probability at most e^epsilon p + delta, and at most 1 - (1 - p - delta) /
    e^epsilon, where it was this one [Kairouz, Oh, Viswanath 2015, theorem 2.1]. Under zCDP
    that holds for every delta and the epsilon it gives; the least of some is taken.
    """
    if isinstance(budget, ZCDP):
        deltas = [10.0**-e for e in range(1, 13)]
        pairs = [(dp_epsilon(budget, delta), delta + beside) for delta in deltas]
    elif isinstance(budget, PureDP):
        pairs = [(budget.epsilon, beside)]
    else:
        pairs = [(budget.epsilon, budget.delta)]
    return min(_power(epsilon, delta, wrong) for epsilon, delta in pairs)


def dp_epsilon(budget: ZCDP, delta: float) -> float:
    return budget.to_approx(delta).epsilon


def _power(epsilon: float, delta: float, wrong: float) -> float:
    grown = math.exp(min(epsilon, 700)) * wrong + delta
    return min(1.0, grown, 1 - math.exp(-min(epsilon, 700)) * (1 - wrong - delta))


def estimated(task: Task) -> Pairs:
    """What each number estimates, what is left out, and the errors to expect."""
    estimate = task.estimate()
    plain = replace(estimate, left_out=(), chosen="")
    pairs = [("Each number estimates", f"{_capital(estimate.what)}.")]
    if estimate.left_out:
        pairs.append(("Left out (no band covers it)", f"{_capital('; '.join(estimate.left_out))}."))
    if estimate.chosen:
        pairs.append(("Chosen", estimate.chosen))
    said = task.errors(plain)
    pairs.append(("Errors", said))
    pairs += [("Also", remark) for remark in task.remarks()]
    return pairs


def counted(task: Task) -> list[str]:
    """What the command says before it runs: what a row counts, and how much is released."""
    return [_capital(report.unlabelled(note)) for note in [*task.notes(), *task.outlook()]]


def account(task: Task) -> Pairs:
    """What was spent, on what."""
    covers = f"All releases {task.covers()}together".replace("  ", " ")
    return [
        ("Budget", task.budget()),
        ("It covers", covers),
        ("Spent", _capital(report.one_run(task.options))),
        *([("Account", task.account)] if task.account else []),
        (
            "Noise",
            f"{task.drawn_by}, drawn from {_source(task)}",
        ),
    ]


def _source(task: Task) -> str:
    options = task.options
    replayed = options.secret_env is not None or options.secret_file is not None
    return "a secret, so that it can be replayed" if replayed else "the operating system"


def parameters(task: Task) -> Pairs:
    """The options that say what is counted and how. No paths, nor where secrets are."""
    pairs = [
        ("mechanism", task.mechanisms),
        ("command", f"{task.name}, beam_dpcount {dp.__version__}"),
    ]
    return pairs + [(opt.option(name), text) for name, text in _given(task.options)]


def _given(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for name, value in options.given.items():
        kept = name in options.counted or name in _SHOWN
        if kept and name not in ("input", "run_id", "mechanism") and not name.endswith("_file"):
            yield name, _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, str) or not isinstance(value, Sequence):
        return str(value)
    words = [_shown(word) for word in value]
    more = len(words) - _LISTED
    rest = f" and {more:,} others" if more > 0 else ""
    return ", ".join(word or "''" for word in words[:_LISTED]) + rest


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
