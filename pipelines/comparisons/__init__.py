"""The experiments of `pipelines.compare`."""
