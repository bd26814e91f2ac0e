"""The command lines: each is one file, whose `main` takes the arguments, and one entry here."""

# By name, in the order of `beam-dpcount --help`: the question that a command answers.
COMMANDS = {
    "count": "How many so far, after every event? (what an event counts is protected)",
    "ticks": "How many so far, at every tick of a clock? (that an event is there is)",
    "histogram": "How many of each kind, after every event?",
    "sequences": "Which words or episodes of actions are frequent?",
    "graph": "How many edges, triangles, ... has a graph that grows?",
    "run": "What does a plan count? (a YAML file, as --save-plan writes it)",
    "choose": "Which mechanism fits a budget, and which is best?",
    "errors": "What errors are to be expected, before anything is read?",
    "bounds": "How many events of a person should count? (private: it looks at them)",
    "account": "What have all runs over these rows cost together?",
    "demo": "What does it look like? (a made-up log, counted and drawn)",
}

# Those that a plan may name.
COUNTING = ("count", "ticks", "histogram", "sequences", "graph")

# Commands that are elsewhere now, and where.
MOVED = {
    "compare": "python -m benchmarks.papers, in a checkout of the project, takes the same options",
}
