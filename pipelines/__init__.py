"""Five pipelines to start from: docs/guide/pipelines.md runs them. Copy one, and make it your own.

| python -m pipelines. | counts |
|---|---|
| count_file | views of each page, hour by hour, from a CSV file |
| unbounded | views of each page, tick by tick, while they happen |
| select_keys | the same of pages that nobody listed |
| several_numbers | views, people and the share of purchases under one budget |
| triangles | triangles of a graph that grows edge by edge |

files.py has what they share: options, lines that are read, rows that are written. Each command
takes --input, --output, --epsilon, --delta, and Beam's own options (--runner, ...).
"""
