"""Whole programs that use the package; not installed."""
