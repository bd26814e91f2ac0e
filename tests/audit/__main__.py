"""`make audit`: all rows, the tables of docs/audit.md, and what is wrong; 1 if anything is."""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.audit.table import PAGE, Found, jobs, quiet, tables, written


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="of names of rows; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/audit.md")
    options = parser.parse_args()
    chosen = [job for job in jobs() if not options.words or set(options.words) & {job[1][0]}]
    if not chosen:
        parser.error("no row has this name")
    began, found = time.monotonic(), list[Found]()
    with ProcessPoolExecutor(
        options.jobs, multiprocessing.get_context("spawn"), initializer=quiet
    ) as pool:
        submitted = [(pool.submit(call, *given), given) for call, given in chosen]
        for waiting, given in submitted:
            if (row := waiting.result()) is not None:
                found.append(row)
                print(
                    *(row.faults() or [f"fine: {', '.join(map(str, given))}"]), sep="\n", flush=True
                )
    made = tables(found)
    print(*made.values(), sep="\n\n")
    if options.write:
        page = PAGE.read_text("utf-8")
        for name, table in made.items():
            page = written(page, name, table)
        PAGE.write_text(page, "utf-8")
    faults = [fault for row in found for fault in row.faults()]
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = f"{time.monotonic() - began:.0f} s, {spent.ru_utime + spent.ru_stime:.0f} s of CPU"
    print(f"\n{len(found)} rows, {len(faults)} faults, in {took}")
    print(*faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
