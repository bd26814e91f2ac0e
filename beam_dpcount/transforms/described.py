"""How transforms show their public parameters: annotations and display data."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from copy import copy
from dataclasses import fields
from typing import Any

import apache_beam as beam
from apache_beam.pipeline import encode_annotations


class Described(beam.PTransform[Any, Any]):
    """A transform that shows its public parameters, never seeds.

    Only `expand` knows which counter is in use, as that depends on the input. Beam asks for
    annotations before it, and for display data when the pipeline is run.
    """

    def _fix(self) -> None:
        """At the end of `__post_init__`: noise and account were made for these arguments."""
        given: Any = self
        self._fixed = frozenset(field.name for field in fields(given))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_fixed", ()):
            kind = type(self).__name__
            raise AttributeError(f"{name} of {kind} is fixed: make another {kind} with it")
        super().__setattr__(name, value)

    @abstractmethod
    def _describe(self) -> Mapping[str, str]:
        """The public parameters."""

    def _show_applied(self, pipeline: beam.Pipeline) -> None:
        """In `expand`, once all is known: show what is in use here.

        It stays so if the transform is applied again, elsewhere, with another counter.
        """
        applied = pipeline.transforms_stack[-1]
        given = applied.annotations or {}  # with those that the user has attached
        applied.annotations = {**given, **encode_annotations(self.annotations())}
        applied.transform = copy(self)

    def annotations(self) -> dict[str, bytes | str]:
        described = self._describe().items()
        # Beam takes texts in ASCII only, and a run id may have others.
        texts = ((f"beam_dpcount:{name}", text) for name, text in described)
        return {
            name: text if text.isascii() else text.encode(errors="backslashreplace")
            for name, text in texts
        }

    def display_data(self) -> dict[str, Any]:
        return dict(self._describe())
