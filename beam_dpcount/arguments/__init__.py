"""One table of arguments: what a count can be told, for command lines, Beam YAML and their help.

`table.py` has the arguments, `kinds.py` how text becomes a value, `groups.py` what several values
make together. No file here imports Beam, nor knows which door asks.
"""
