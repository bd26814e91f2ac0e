"""python -m pipelines.demo: see `beam_dpcount.commands.demo`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.demo import main

if __name__ == "__main__":
    run_main(main)
