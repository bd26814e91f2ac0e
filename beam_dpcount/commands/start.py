"""The function that a command line calls: it parses options before it imports Beam."""

from __future__ import annotations

from collections.abc import Sequence

from beam_dpcount.commands import stop
from beam_dpcount.commands.app import Main
from beam_dpcount.commands.files.streams import notes_aside
from beam_dpcount.commands.task import Task


def command(task: type[Task]) -> Main:
    """The function that runs a task on a command line."""

    def main(argv: Sequence[str] | None = None) -> None:
        """Run the command; raises what `run` raises."""
        parser = task.parser()
        options, flags = parser.parse_known_args(argv)
        with notes_aside(options.output), stop.others_temporary():
            from beam_dpcount.commands.run import run  # here: it imports Beam, and --help does not

            run(task.of(options), flags, parser.names())

    return main
