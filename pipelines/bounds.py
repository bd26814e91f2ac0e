"""python -m pipelines.bounds: see `beam_dpcount.commands.bounds`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.bounds import main

if __name__ == "__main__":
    run_main(main)
