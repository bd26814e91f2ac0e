"""Engines that pipelines run on here: Prism, and Flink by a translation of our own."""
