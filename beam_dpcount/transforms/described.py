"""How transforms show their public parameters: annotations and display data."""

from __future__ import annotations

from copy import copy
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import encode_annotations

from beam_dpcount.plans.described import Plan


class Described(Plan, beam.PTransform[Any, Any]):
    """A transform that shows its public parameters, never seeds.

    Only `expand` knows which counter is in use, as that depends on the input. Beam asks for
    annotations before it, and for display data when the pipeline is run.
    """

    def _show_applied(self, pipeline: beam.Pipeline) -> None:
        """In `expand`, once all is known: show what is in use here.

        It stays so if the transform is applied again, elsewhere, with another counter.
        """
        applied = pipeline.transforms_stack[-1]
        given = applied.annotations or {}  # with those that the user has attached
        applied.annotations = {**given, **encode_annotations(self.annotations())}
        applied.transform = copy(self)
