"""The experiments of the command compare."""
