"""python -m beam_dpcount, where the console command beam-dpcount is not at hand."""

from beam_dpcount.commands.door import console

if __name__ == "__main__":
    console()
