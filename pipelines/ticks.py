"""python -m pipelines.ticks: see `beam_dpcount.commands.ticks`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.ticks import main

if __name__ == "__main__":
    run_main(main)
