"""The command lines: each is one file, whose `main` takes the arguments, and one entry here."""

COMMANDS = (
    *("count", "ticks", "histogram", "sequences", "graph"),
    *("choose", "errors", "bounds", "account"),
)
