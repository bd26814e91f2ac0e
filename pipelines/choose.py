"""python -m pipelines.choose: see `beam_dpcount.commands.choose`."""

from beam_dpcount.commands.app import run_main
from beam_dpcount.commands.choose import main

if __name__ == "__main__":
    run_main(main)
