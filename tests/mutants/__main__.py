"""`make mutants`: a line a mutant, killed or alive; 1 unless all were killed."""

from __future__ import annotations

import argparse
import resource
import sys
import time

from tests.mutants.runner import KILLED, judged
from tests.mutants.table import MUTANTS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="of names, kinds or files")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    options = parser.parse_args()
    chosen = [
        mutant
        for mutant in MUTANTS
        if not options.words
        or any(word in f"{mutant.name} {mutant.kind} {mutant.file}" for word in options.words)
    ]
    if not chosen:
        parser.error("no mutant has one of these words in its name, kind or file")
    began, fates = time.monotonic(), []
    for mutant, verdict in judged(chosen, options.jobs):
        fates.append(verdict.fate)
        print(f"{verdict.fate:7} {mutant.kind}: {mutant.name} [{mutant.check}]", flush=True)
        if verdict.fate != KILLED:
            print(verdict.said, flush=True)
    killed, spent = fates.count(KILLED), resource.getrusage(resource.RUSAGE_CHILDREN)
    took = f"{time.monotonic() - began:.0f} s, {spent.ru_utime + spent.ru_stime:.0f} s of CPU"
    print(f"{killed} of {len(fates)} killed, in {took}")
    return int(killed < len(fates))


if __name__ == "__main__":
    sys.exit(main())
