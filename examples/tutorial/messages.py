"""The tutorial's log: python examples/tutorial/messages.py CollegeMsg.txt.gz messages.csv.

Reads messages between students as SNAP publishes them, "sender receiver seconds" a line, and writes
them as logs often are: a header, and a date and a time of day in two columns, UTC. Which part of
the day it is has a column too.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import sys
from pathlib import Path

HEADER = ("date", "time", "part", "sender", "receiver")
PARTS = ("night", "morning", "afternoon", "evening")  # six hours each, from midnight


def main(source: Path, log: Path) -> None:
    """Write the log."""
    lines = (gzip.open if source.suffix == ".gz" else open)(source, "rt", encoding="ascii")
    with lines, log.open("w", newline="", encoding="ascii") as out:
        rows = csv.writer(out)
        rows.writerow(HEADER)
        for line in lines:
            sender, receiver, seconds = line.split()
            if seconds.isdigit():  # no header
                at = dt.datetime.fromtimestamp(int(seconds), dt.timezone.utc)
                rows.writerow(
                    (f"{at:%Y-%m-%d}", f"{at:%H:%M:%S}", PARTS[at.hour // 6], sender, receiver)
                )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
