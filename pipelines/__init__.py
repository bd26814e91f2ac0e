"""Tasks to run from the command line, e.g. python -m pipelines.count --help."""
