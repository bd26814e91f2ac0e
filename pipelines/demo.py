"""The main job on an event log that it makes itself: private purchase counts of a web shop.

A day of 40,000 page views and purchases on 20 pages, Zipf-distributed. How many people view a
page is public here; whether a visit ended in a purchase is not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from beam_dpcount.commands import count
from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.options import Parser
from pipelines import eventlog


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser("demo", __doc__)
    parser.add_argument("--directory", default="out/demo", help="default %(default)s")
    directory = parser.parse_args(argv).directory
    os.makedirs(directory, exist_ok=True)
    log = os.path.join(directory, "events.csv")
    eventlog.write(log)
    print(f"made event log: {log}")
    read = "--key page --where action=purchase --timestamp timestamp --timestamp-format iso"
    counted = "--epsilon 1 --delta 1e-6 --horizon 20000 --show-truth --overwrite"
    out, picture = (os.path.join(directory, f"counts.{suffix}") for suffix in ("csv", "png"))
    files = ["--input", log, "--output", out, "--plot", picture]
    count.main([*read.split(), *counted.split(), *files])


if __name__ == "__main__":
    run_main(main)
