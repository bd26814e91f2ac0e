"""Calibrated counters: what one event changes, the noise, exact errors."""

# `calibrate` knows the counters of these only once they are imported.
from beam_dpcount.counters import sparse as sparse
from beam_dpcount.counters import unbounded as unbounded
