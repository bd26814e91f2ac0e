"""Events read from CSV, JSON lines and Parquet, in a pipeline; see `files.events`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.coders.typecoders import registry
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.commands.files.events import events as plain_events
from beam_dpcount.commands.files.formats import Event, InputFile, Source
from beam_dpcount.commands.files.inputs import files_of
from beam_dpcount.commands.files.records import Unread


class _EventCoder(coders.Coder):
    """Takes half the time and size of Beam's pickling when events are shuffled."""

    _fields = coders.TupleCoder(
        (
            coders.FastPrimitivesCoder(),
            coders.StrUtf8Coder(),
            coders.VarIntCoder(),
            coders.StrUtf8Coder(),
        )
    )

    def encode(self, value: Event) -> bytes:
        return self._fields.encode(tuple(value))

    def decode(self, encoded: bytes) -> Event:
        return Event(*self._fields.decode(encoded))

    def is_deterministic(self) -> bool:
        return False

    def to_type_hint(self) -> type[Event]:
        return Event


registry.register_coder(Event, _EventCoder)


class ReadEvents(beam.PTransform[PBegin, PCollection[tuple[str, Event]]]):
    """Reads (key, Event), in the order of each file's rows.

    Raises:
      InputError: a file does not fit. Beam wraps it, so call `files.events.check` first, which
        finds most.
    """

    def __init__(self, source: Source, files: Sequence[InputFile] | None = None) -> None:
        """`files` are all that are read, and no others that come later; default: now's."""
        super().__init__()
        self.source, self.files = source, files_of(source) if files is None else files

    def expand(self, pbegin: PBegin) -> PCollection[tuple[str, Event]]:
        # No Reshuffle: it would mix up the rows of a file.
        each = beam.FlatMap(iter).with_output_types(Any)  # a NamedTuple would become a row
        read = beam.FlatMap(partial(events, self.source)).with_output_types(tuple[str, Event])
        return (
            pbegin | "Matched" >> beam.Create([list(self.files)]) | "Each" >> each | "Parse" >> read
        )


def all_events(source: Source, unread: Unread | None = None) -> Iterator[Any]:
    """Reads all events, in the order of the files, without a pipeline; `unread` as of `events`."""
    for data in files_of(source):
        yield from events(source, data, unread)


def events(source: Source, data: InputFile, unread: Unread | None = None) -> Iterator[Any]:
    """Yields (key, Event) of one file, in a TimestampedValue if there is a column of timestamps."""
    for key, event, micros in plain_events(source, data, unread):
        if micros is None:
            yield key, event
        else:
            yield TimestampedValue((key, event), Timestamp(micros=micros))
