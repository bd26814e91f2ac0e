"""The PTransforms: thin, composed of DoFns and pure functions."""

from beam_dpcount.transforms.counts import PrefixCount

__all__ = ["PrefixCount"]
