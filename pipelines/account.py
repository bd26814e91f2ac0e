"""python -m pipelines.account: see `beam_dpcount.commands.account`."""

from beam_dpcount.commands.account import main
from beam_dpcount.commands.app import run_main

if __name__ == "__main__":
    run_main(main)
