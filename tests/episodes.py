"""Episodes in a sequence, from their definition."""

from __future__ import annotations

from typing import Any


def occurrences(episode: list[str], letters: list[Any], span: int | None) -> int:
    """Minimal occurrences of an episode of one or two letters, from the definition."""
    if len(episode) == 1:
        return letters.count(episode[0])
    first, second = episode
    total = 0
    for end, letter in enumerate(letters):
        if letter == second:
            starts = [i for i in range(end) if letters[i] == first]
            if starts:
                within = letters[starts[-1] + 1 : end]
                # No shorter stretch from that start holds it; none that starts later can.
                short = span is None or end - starts[-1] < span
                total += second not in within and short
    return total
