"""Counts whose workers are killed by kill -9, again and again: python -m tests.crash."""
