"""Runs a plan: a YAML file that says what is counted, which --save-plan of a command writes.

A plan has the options of one command by their names in the help, with _ for -: `per_user: 3` is
--per-user 3. What a command line gives several times is a list: `metrics` and `views`, which Beam
YAML calls so too. `command` says which command it is; without it, ticks. Paths are from the plan's
folder. A plan is the record of what is counted, so that its options stand in it alone: only what
may differ from night to night is given here, and takes the place of what the plan says.

A plan holds no secrets: replayable noise is given by secret_env or secret_file, names of places.
--dry-run says everything beforehand: guarantee, errors, cost. Nothing is counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from beam_dpcount.arguments.table import ARGUMENTS, applying
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.options import Parser, option
from beam_dpcount.commands.start import start

EXAMPLE = r"""
beam-dpcount run plan.yaml --dry-run
"""

_IN_PLAN = "write it into the plan, which is the record of what is counted"


def arguments() -> Parser:
    """The options of `run`."""
    from beam_dpcount.commands.plan_files import OF_A_RUN  # here: it imports YAML

    taken = [one for one in applying("files run ticks sentence") if one.name in OF_A_RUN]
    taken = [replace(one, more=False) for one in taken]
    parser = Parser("run", __doc__, EXAMPLE, taken)
    parser.add_argument("plan", metavar="PLAN", help="the plan, a .yaml file")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run a plan.

    Raises:
      ValueError, TypeError, OSError: what the user can fix, in one line each.
    """
    from beam_dpcount.commands import plan_files  # here: it imports YAML

    elsewhere = {option(one.name): _IN_PLAN for one in ARGUMENTS}
    elsewhere["--save-plan"] = "the plan is a file already; copy it"
    line = arguments().parse_ours(argv, elsewhere)
    plan = plan_files.read(line.plan)
    parser = plan.task.parser()
    given = {name: line.given[name] for name in plan_files.OF_A_RUN if name in line.given}
    for name in given:
        if option(name) not in parser.names():
            raise InputError(f"{option(name)} is not an option of {plan.task.name}, of {plan.path}")
    values = dict(plan.values)
    if {"until", "delay"} & {*given}:  # either takes the place of both
        values = {n: x for n, x in values.items() if n not in ("until", "delay")}
    options = parser.options_of({**values, **given})
    with plan_files.named_as_fields(plan, given), _folder(os.path.dirname(plan.path)):
        start(plan.task, options, [], parser.names())


@contextmanager
def _folder(path: str) -> Iterator[None]:
    """Paths are from this folder within, to the letter: they are a part of replayable noise."""
    before = os.getcwd()
    if path:
        os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)
