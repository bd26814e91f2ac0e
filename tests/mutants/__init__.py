"""Mutants: the package with one promise broken, each of which a named check must notice.

    python -m tests.mutants [WORD ...]

applies them, one at a time, to copies of the checkout: those whose name, kind or file has one of
the words in it, or all. `table.py` lists them.
"""
