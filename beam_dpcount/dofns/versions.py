"""DoFns that run only on workers with the library that the pipeline was made by."""

from __future__ import annotations

import sys
from typing import Any

import apache_beam as beam

from beam_dpcount.errors import Error
from beam_dpcount.noise.replay import NOISE_FORMAT
from beam_dpcount.version import __version__

# Not the format of states, which says itself what does not fit.
HERE = (
    f"beam_dpcount {__version__} (noise format {NOISE_FORMAT}) on Python "
    f"{sys.version_info.major}.{sys.version_info.minor}"
)
_MADE_BY = "_made_by"


class VersionError(Error, RuntimeError):
    """A worker has another version of the library, or of Python, than the pipeline was made by."""


class VersionedDoFn(beam.DoFn):
    """A DoFn that is refused by workers of other versions than the submitter's.

    They would read its fields, and its counters' parameters, as something else; and of functions of
    the user, Beam pickles the bytecode, which each Python reads its own way.

    Raises:
      VersionError: when a worker unpickles it, before any element.
    """

    def __init__(self) -> None:  # with its types, which Beam does not say
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, _MADE_BY: HERE}

    def __setstate__(self, state: dict[str, object]) -> None:
        fields = {**state}
        made_by = fields.pop(_MADE_BY, "an earlier beam_dpcount")
        if made_by != HERE:
            raise VersionError(
                f"this worker has {HERE}, but the pipeline was made by {made_by}: install the "
                "submitter's versions on every worker; to upgrade, stop the job with a savepoint "
                "and submit it by the new version"
            )
        self.__dict__.update(fields)
