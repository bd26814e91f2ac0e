"""Comparisons of the mechanisms, as tables and pictures: each experiment writes a CSV and PNGs.

Errors are exact where they have closed forms, and measured on made-up data where a paper does so.
A new experiment is one entry in EXPERIMENTS: rows, pictures of them, and a headline.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence

from beam_dpcount.commands import app as cli
from pipelines.comparisons import binned, members, repairs, sparsity, top, trees
from pipelines.comparisons.base import Experiment, progress, table

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
        output.save(paths[-1])
    return f"{name}: {experiment.headline(rows)} [{' '.join(paths)}]"


def arguments() -> argparse.ArgumentParser:
    experiments = "\n".join(f"  {name:<26}{e.rows.__doc__}" for name, e in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.compare",
        description=__doc__,
        epilog=f"experiments:\n{experiments}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="fewer points, in seconds")
    parser.add_argument("--directory", default="out/compare", help="default %(default)s")
    parser.add_argument(
        "--data",
        metavar="DIRECTORY",
        help="real streams for post-processing: bgl_2k.csv, healthapp_2k.csv and collegemsg.txt; "
        "default: made-up ones",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these experiments")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command. ValueError: an unknown name, or a directory that is not writable."""
    options = arguments().parse_args(argv)
    names = list(dict.fromkeys(options.only or EXPERIMENTS))
    for name in names:
        if name not in EXPERIMENTS:
            raise ValueError(f"unknown experiment {name!r}: choose from {', '.join(EXPERIMENTS)}")
    try:
        os.makedirs(options.directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.directory):
            pass
    except OSError as error:
        reason = error.strerror or "not possible"
        raise ValueError(f"cannot write to --directory {options.directory!r}: {reason}") from None
    for name in names:
        print(run(name, options.directory, options.quick, options.data), flush=True)


if __name__ == "__main__":
    cli.run_main(main)
