"""The mechanisms beside each other, as papers show them: python -m benchmarks.papers."""
