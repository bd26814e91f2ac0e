"""Which files of the package make up logs, for demonstrations, by a seed.

No release is of anything else than its noise, and these draw none; tests/test_noise.py looks at who
imports them.
"""

from __future__ import annotations

import re
from pathlib import Path

_FILES = re.compile(r"commands/eventlog\.py$")


def makes_up_logs(path: Path) -> bool:
    return _FILES.search(path.as_posix()) is not None
