"""Scores of releases by one who knows nothing of the mechanism: learned from trials.

The log-odds of the neighbours are fitted as a sum of step functions, of each release, each
difference of two in a row, and their sum: a logistic regression on indicators of bins. Whatever it
says is a function of releases, so that what it proves is true.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_BINS = 12
_ROUNDS = 8  # of Newton's method
_RIDGE = 1.0
_LEARNED_FROM = 60_000  # trials of each neighbour, at most

FloatArray = np.ndarray


def learned(ours: FloatArray, theirs: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """A function that scores trials, by trials of two neighbours, each shape (trials, releases)."""
    ours, theirs = ours[:_LEARNED_FROM], theirs[:_LEARNED_FROM]
    seen = views(np.concatenate([ours, theirs]))
    cuts = [np.unique(np.quantile(view, np.arange(1, _BINS) / _BINS)) for view in seen.T]

    def steps(trials: FloatArray) -> FloatArray:
        shown = views(trials)
        parts = [view[:, None] > cut for view, cut in zip(shown.T, cuts, strict=True)]
        return np.concatenate([np.ones((len(trials), 1), dtype=bool), *parts], axis=1).astype(
            np.float32
        )

    x = steps(np.concatenate([ours, theirs]))
    y = np.repeat([1.0, 0.0], [len(ours), len(theirs)])
    w = np.zeros(x.shape[1])
    for _ in range(_ROUNDS):
        p = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        slope = x.T @ (y - p) - _RIDGE * w
        curve = (x * (p * (1 - p))[:, None].astype(np.float32)).T @ x
        w = w + np.linalg.solve(curve + _RIDGE * np.eye(len(w)), slope)
    return lambda trials: np.concatenate(
        [steps(part) @ w for part in np.array_split(trials, 1 + len(trials) // 50_000)]
    )


def views(trials: FloatArray) -> FloatArray:
    """What is looked at of each trial's releases: they, their differences, and their sum."""
    if trials.shape[1] == 1:
        return trials
    return np.concatenate(
        [trials, np.diff(trials, axis=1), trials.sum(axis=1, keepdims=True)], axis=1
    )
