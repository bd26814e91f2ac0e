"""Counts of rows: fields by name in, schema rows out, arguments that text can say.

For Beam YAML, for pipelines in other languages, and for whoever has rows already. Each is a thin
transform around the one of its name; docs/rows.md has examples.
"""

from beam_dpcount.rows.counts import HistogramRows, PrefixCountRows
from beam_dpcount.rows.releases import CountRow, ItemRow
from beam_dpcount.rows.ticks import TickCountRows

__all__ = [
    "CountRow",
    "HistogramRows",
    "ItemRow",
    "PrefixCountRows",
    "TickCountRows",
]
