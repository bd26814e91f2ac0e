"""python -m pipelines.errors: see `beam_dpcount.commands.errors`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.errors import main

if __name__ == "__main__":
    run_main(main)
