"""The function that a command line calls: it parses options before it imports Beam."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import Protocol

from beam_dpcount.commands import stop
from beam_dpcount.commands.files.streams import notes_aside
from beam_dpcount.commands.options import Parser
from beam_dpcount.commands.task import Task


class Command(Protocol):
    """A class of tasks."""

    name: str

    def parser(self) -> Parser: ...

    def of(self, options: argparse.Namespace) -> Task: ...


class CommandLine:
    """The function that runs a task on a command line.

    Attributes:
      task: the class of tasks.
    """

    __name__ = "main"

    def __init__(self, task: Command) -> None:
        self.task = task

    def __call__(self, argv: Sequence[str] | None = None) -> None:
        """Run the command; raises what `run` raises."""
        parser = self.task.parser()
        options, flags = parser.parse_known_args(argv)
        start(self.task, options, flags, parser.names())


def command(task: Command) -> CommandLine:
    """The function that runs a task on a command line."""
    return CommandLine(task)


def start(
    task: Command, options: argparse.Namespace, flags: Sequence[str], names: Collection[str]
) -> None:
    """Run a task, with flags and names as in `beam_options`; raises what `run` raises."""
    with notes_aside(options.output), stop.others_temporary():
        from beam_dpcount.commands.runner import run  # here: it imports Beam, and --help does not

        run(task.of(options), flags, names)
