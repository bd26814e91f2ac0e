"""The version of the library, for all its rooms."""

__version__ = "0.1.0"  # as in pyproject.toml
