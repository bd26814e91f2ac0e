"""PrefixCount and Histogram of rows."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, ClassVar

from beam_dpcount.arguments import groups
from beam_dpcount.arguments.table import Changes
from beam_dpcount.rows.base import REQUIRED, Rows, Values, shared
from beam_dpcount.rows.fields import Values as Contents
from beam_dpcount.rows.fields import text
from beam_dpcount.rows.releases import ItemRow, ToItemRows
from beam_dpcount.transforms.counts import PrefixCount
from beam_dpcount.transforms.histograms import Histogram

_VALUE, _ID = itemgetter(0), itemgetter(2)  # of what is read of a row


def _identified(values: Values) -> dict[str, Any]:
    """What transforms per element take besides: the value, and the id if there is one."""
    return {"value": _VALUE, "element_id": None if values["id"] is None else _ID}


class PrefixCountRows(Rows):
    """`PrefixCount` of rows: a private running sum per key, a row after every row.

    PCollection of rows with a schema -> PCollection[CountRow]. Numbers may be given as text, such
    as "1e-6".

    Guarantee: that of PrefixCount: what a row's value is, is protected; the keys, and number, order
      and times of the rows are public. A row whose time cannot be read stops the pipeline.

    Raises:
      ValueError, TypeError: at construction, as for PrefixCount; when applied, for input without a
        schema, fields that it does not have, and fields of other types.

    Example:
      >>> import apache_beam as beam
      >>> from beam_dpcount.rows import PrefixCountRows
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     rows = pipeline | beam.Create([beam.Row(page="/home", bought=True)])
      ...     count = PrefixCountRows(key="page", value="bought", horizon=100, epsilon="1")
      ...     _ = rows | count | beam.Map(lambda row: print(row.key, row.step, row.timestamp))
      /home 1 None
    """

    counts = "elements numbers people thinned rejects"
    first = ("key", "value", "horizon")
    changes: ClassVar[Changes] = {"value": REQUIRED, "every": {"default": 1}}
    drops = False

    def transform(self, values: Values) -> PrefixCount:
        given = shared(type(self), values) | _identified(values)
        return PrefixCount(groups.budget(values), values["horizon"], **given)

    def content(self, values: Values) -> Contents:
        return Contents(values["value"], values["user"], values["id"])


class HistogramRows(Rows):
    """`Histogram` of rows: private running counts of the items of a public domain.

    PCollection of rows with a schema -> PCollection[ItemRow]: after every row, a row for each item
    of the domain.

    Guarantee: that of Histogram: what a row's item is, is protected.

    Raises:
      ValueError, TypeError: as for PrefixCountRows, and for a bad domain.

    Example:
      >>> import apache_beam as beam
      >>> from beam_dpcount.rows import HistogramRows
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     rows = pipeline | beam.Create([beam.Row(page="/home", action="view")])
      ...     count = HistogramRows("page", "action", ["view", "buy"], horizon=100, epsilon=1)
      ...     _ = rows | count | beam.Map(lambda row: print(row.key, row.step, row.item))
      /home 1 view
      /home 1 buy
    """

    counts = "elements items people thinned rejects"
    first = ("key", "item", "domain", "horizon")
    changes: ClassVar[Changes] = {"every": {"default": 1}}
    drops = False

    def transform(self, values: Values) -> Histogram:
        given = shared(type(self), values) | _identified(values)
        budget, self._domain = groups.budget(values), values["domain"]
        return Histogram(budget, values["horizon"], self._domain, **given)

    def content(self, values: Values) -> Contents:
        return Contents(values["item"], values["user"], values["id"], text)

    def write(self) -> ToItemRows:
        return ToItemRows(self._domain)

    def row_type(self) -> Any:
        return ItemRow
