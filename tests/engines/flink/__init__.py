"""Flink, from PyPI, and a translation of Beam's pipelines to it."""
