"""What is known of the runners that a pipeline may run on."""

from __future__ import annotations

import apache_beam as beam

_SPREADING = frozenset(("DataflowRunner", "FlinkRunner", "SparkRunner"))


def spreads_groups(pipeline: beam.Pipeline) -> bool:
    """Whether the pipeline's runner spreads groups over workers, so that no order comes out."""
    return type(pipeline.runner).__name__ in _SPREADING
