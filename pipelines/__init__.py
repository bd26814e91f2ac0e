"""Tasks to run from the command line: python -m pipelines.count --help."""
