"""python -m pipelines.count: see `beam_dpcount.commands.count`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.count import main

if __name__ == "__main__":
    run_main(main)
