"""Counts of whole columns, without Beam: the same releases, to the bit, as a pipeline makes."""
