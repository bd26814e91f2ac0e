"""Tasks to run from the command line, e.g. python -m pipelines.count --help."""

import logging


class _NotOurs(logging.Filter):
    """Beam warns about Google's libraries at import, even of those who never use them."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "apitools not found" not in record.getMessage()


logging.getLogger().addFilter(_NotOurs())
