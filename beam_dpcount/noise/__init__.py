"""Exact integer noise: its laws, where draws come from, and noise that a replay repeats."""
