"""The commands where there is no checkout: python -m beam_dpcount.commands count --help."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from beam_dpcount import commands
from beam_dpcount.commands.app import run_main


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command that the first argument names."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if name not in commands.COMMANDS:
        raise ValueError(f"give a command, one of {', '.join(commands.COMMANDS)}, got {name!r}")
    import_module(f"{commands.__name__}.{name}").main(rest)


if __name__ == "__main__":
    run_main(main)
