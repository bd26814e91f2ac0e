"""Audits of what is released: exactly, from trials, and by attacks.

    python -m tests.audit [--write | --quick]

prints the table of docs/audit.md, anew, and says whether all holds; it takes minutes. `exact.py`
computes losses without sampling, `epochs.py` and `segments.py` those of Unbounded and Sparse;
`bounds.py` has lower bounds with confidence, from scores of trials; `classifier.py` makes scores
without knowing anything of a mechanism; `counters.py` audits counters, `pipelines.py` transforms;
`attacks.py` attacks floating point; `table.py` is the table.
"""
