"""The PTransforms: thin, composed of DoFns and pure functions."""
