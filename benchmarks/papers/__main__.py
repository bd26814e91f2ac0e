"""Comparisons of the mechanisms, as tables and pictures: each experiment writes a CSV and PNGs.

Errors are exact where they have closed forms, and measured on made-up data where a paper does so.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Sequence

from beam_dpcount.arguments.argument import parsed
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.commands import stop
from beam_dpcount.commands.app import run_main, say
from beam_dpcount.commands.options import Parser
from benchmarks.papers import binned, members, repairs, sparsity, top, trees
from benchmarks.papers.base import Experiment, progress, table

NAME = "python -m benchmarks.papers"
EXAMPLE = f"{NAME} --quick --only variance-over-time --directory out/compare"

OWN = parsed(
    "",
    """
    quick: switch
        fewer points, in seconds
    directory DIRECTORY: text, default=out/compare
        where files go (default out/compare)
    data DIRECTORY: text
        real streams for post-processing: bgl_2k.csv, healthapp_2k.csv and collegemsg.txt; default:
        made-up ones
    only NAME ...: texts
        only these experiments
    """,
)

# A new experiment is one entry: rows, pictures of them, and a headline.
EXPERIMENTS: dict[str, Experiment] = {
    "event-dp": Experiment(trees.event_dp, trees.event_dp_pictures, trees.event_dp_headline),
    "variance-over-time": Experiment(
        trees.over_time, trees.over_time_pictures, trees.over_time_headline
    ),
    "variance-against-horizon": Experiment(
        trees.against_horizon, trees.against_horizon_pictures, trees.against_horizon_headline
    ),
    "arity": Experiment(trees.arity, trees.arity_pictures, trees.arity_headline),
    "members": Experiment(members.members, members.members_pictures, members.members_headline),
    "floor": Experiment(members.floor, members.floor_outputs, members.floor_headline),
    "space-against-horizon": Experiment(
        binned.space_against_horizon,
        binned.space_against_horizon_pictures,
        binned.space_against_horizon_headline,
    ),
    "error-against-space": Experiment(
        binned.error_against_space,
        binned.error_against_space_pictures,
        binned.error_against_space_headline,
    ),
    "sparsity": Experiment(
        sparsity.sparsity, sparsity.sparsity_outputs, sparsity.sparsity_headline
    ),
    "top-1": Experiment(top.top, top.top_pictures, top.top_headline),
    "post-processing": Experiment(
        repairs.repairs, repairs.repairs_outputs, repairs.repairs_headline, takes_data=True
    ),
}


def run(name: str, directory: str, quick: bool, data: str | None = None) -> str:
    """Run one experiment and write its files; returns a line with the headline and their paths."""
    experiment = EXPERIMENTS[name]
    rows = experiment.rows(quick, data) if experiment.takes_data else experiment.rows(quick)
    paths = []
    for output in progress([table(rows), *experiment.outputs(rows)], f"{name}, files"):
        paths.append(os.path.join(directory, name + output.ending))
        stop.expect(paths[-1])
        output.save(paths[-1])
    return f"{name}: {experiment.headline(rows)} [{' '.join(paths)}]"


def arguments() -> Parser:
    parser = Parser("compare", __doc__, EXAMPLE, OWN)
    parser.prog = NAME
    experiments = "\n".join(f"  {name:<26}{e.rows.__doc__}" for name, e in EXPERIMENTS.items())
    parser.epilog = f"experiments:\n{experiments}\n\n{parser.epilog}"
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command. ValueError: an unknown name, or a directory that is not writable."""
    options = arguments().parse_ours(argv)
    names = list(dict.fromkeys(options.only or EXPERIMENTS))
    for name in names:
        if name not in EXPERIMENTS:
            choices = f"{did_you_mean(name, EXPERIMENTS)}choose from {', '.join(EXPERIMENTS)}"
            raise ValueError(f"unknown experiment {name!r}: {choices}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("comparisons are drawn with matplotlib: pip install 'beam-dpcount[plots]'")
    try:
        os.makedirs(options.directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.directory):
            pass
    except OSError as error:
        reason = error.strerror or "not possible"
        raise ValueError(f"cannot write to --directory {options.directory!r}: {reason}") from None
    for name in names:
        say([run(name, options.directory, options.quick, options.data)])


if __name__ == "__main__":
    run_main(main)
