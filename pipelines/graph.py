"""python -m pipelines.graph: see `beam_dpcount.commands.graph`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.graph import main

if __name__ == "__main__":
    run_main(main)
