"""Calibrated counters: what one event changes, the noise, exact errors."""
