"""python -m pipelines.compare: see `beam_dpcount.commands.compare`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.compare import main

if __name__ == "__main__":
    run_main(main)
