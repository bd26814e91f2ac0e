"""Empirical Bayes: many counts with noise of one known scale, each moved to where the others are.

The counts of all keys are taken as draws from one distribution, which is fitted to their noisy
values by maximum likelihood, without a shape of its own [KW56]; each value's estimate is the mean
of what it then may have come from [JZ09].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_FINE = 4  # places of the distribution in a standard deviation
_REACH = 6 * _FINE  # how far from a value it may come from, in places
_ROUNDS = 40  # of expectation and maximization: the fit stays smooth, and no longer improves much


def shrunk(values: FloatArray, stddev: float) -> FloatArray:
    """Estimates of counts that are not negative, none of them negative, shape (n,).

    The distribution lies on multiples of stddev / 4 from 0 on, near the values; noise is taken as
    normal. Both are choices of an estimator: no guarantee rests on them.

    Args:
      values: shape (n,), n from 1.
      stddev: that of each value's noise; with 0 they are exact.
    """
    if stddev == 0:
        return np.maximum(values, 0.0)
    places = values * (_FINE / stddev)
    first = np.maximum(np.floor(places) - _REACH, 0)
    near = first[:, None] + np.arange(2 * _REACH + 1)  # a row for each value
    logs = -0.5 * ((places[:, None] - near) / _FINE) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    known, inverse = np.unique(near, return_inverse=True)
    index = inverse.reshape(near.shape)
    share = np.full(len(known), 1 / len(known))
    for _ in range(_ROUNDS):
        posterior = _posterior(likelihood, share[index])
        share = np.bincount(index.ravel(), posterior.ravel(), len(known)) / len(values)
    posterior = _posterior(likelihood, share[index])
    return np.asarray((posterior * near).sum(axis=1) * (stddev / _FINE))


def _posterior(likelihood: FloatArray, prior: FloatArray) -> FloatArray:
    joint = likelihood * prior
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))
