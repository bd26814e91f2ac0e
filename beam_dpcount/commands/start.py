"""The function that a command line calls: it parses options before it imports Beam."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from beam_dpcount.commands import stop
from beam_dpcount.commands.app import Main
from beam_dpcount.commands.files.streams import notes_aside
from beam_dpcount.commands.options import Parser
from beam_dpcount.commands.task import Task


class Command(Protocol):
    """A class of tasks."""

    name: str

    def parser(self) -> Parser: ...

    def of(self, options: argparse.Namespace) -> Task: ...


def command(task: Command) -> Main:
    """The function that runs a task on a command line; `task` is an attribute of it."""

    def main(argv: Sequence[str] | None = None) -> None:
        """Run the command; raises what `run` raises."""
        parser = task.parser()
        options, flags = parser.parse_known_args(argv)
        start(task, options, flags, parser.names())

    entry: Any = main
    entry.task = task
    return main


def start(
    task: Command, options: argparse.Namespace, flags: Sequence[str], names: Collection[str]
) -> None:
    """Run a task, with flags and names as in `beam_options`; raises what `run` raises."""
    with notes_aside(options.output), stop.others_temporary():
        from beam_dpcount.commands.runner import run  # here: it imports Beam, and --help does not

        run(task.of(options), flags, names)
