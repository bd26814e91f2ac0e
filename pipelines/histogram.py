"""python -m pipelines.histogram: see `beam_dpcount.commands.histogram`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.histogram import main

if __name__ == "__main__":
    run_main(main)
