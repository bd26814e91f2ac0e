"""python -m pipelines.sequences: see `beam_dpcount.commands.sequences`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.sequences import main

if __name__ == "__main__":
    run_main(main)
