"""The door to all commands: beam-dpcount NAME ..., or python -m beam_dpcount NAME ..."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder

import beam_dpcount
from beam_dpcount import commands
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.commands import stop

NAME = "beam-dpcount"
_HELP = """\
usage: {name} COMMAND ...

Differentially private counts of event logs, as they grow.

commands, by the question that each answers:
{table}

{name} COMMAND --help shows the options of a command, with an example. To begin with:
  {name} demo
  {name} --version
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names.

    Raises:
      ValueError: there is no such command; and what the command itself raises.
    """
    first, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if first in ("-h", "--help"):
        table = "\n".join(f"  {name:<11}{asks}" for name, asks in commands.COMMANDS.items())
        print(_HELP.format(name=NAME, table=table), end="")
    elif first == "--version":
        print(f"{NAME} {beam_dpcount.__version__}")
    elif first in commands.MOVED:
        raise ValueError(f"{first!r} is no longer a command: {commands.MOVED[first]}")
    elif first not in commands.COMMANDS:
        hint = did_you_mean(first, commands.COMMANDS)
        wrong = f"there is no command {first!r}" if first else "give a command"
        known = ", ".join(commands.COMMANDS)
        raise ValueError(f"{wrong}: {hint}it is one of {known}; see {NAME} --help")
    else:
        import_module(f"{commands.__name__}.{first}").main(rest)


class _NoPandas(MetaPathFinder):
    """Hides pandas: pyarrow and Beam import it if it is there, which takes as long as a short run.

    No command uses it.
    """

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("no command uses pandas", name=fullname)


def console() -> None:
    """The console command."""
    sys.meta_path.insert(0, _NoPandas())
    stop.install()  # here: the import takes some of the time in which a user may change their mind
    from beam_dpcount.commands.app import run_main

    run_main(main)
