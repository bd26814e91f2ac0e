"""python -m pipelines.eventlog: see `beam_dpcount.commands.eventlog`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.eventlog import main

if __name__ == "__main__":
    run_main(main)
