"""Files of many rows: the command `ticks` beside programs without privacy, by pandas and DuckDB.

Each program runs in a process of its own, imports included, and prints its CPU time and peak
memory. `python -m benchmarks.files WAY FILE` runs one of them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks.timing import peak

START, HOURS, PAGES, KEYS, EACH = 1_700_000_000, 24, 50, 4, 5
WORDS = (
    *("--key", "page", "--keys", *(f"/{page}" for page in range(KEYS)), "--timestamp", "time"),
    *("--tick", "1h", "--start", str(START), "--horizon", str(HOURS), "--epsilon", "1"),
    *("--delta", "1e-6", "--overwrite"),
)
PEOPLE = ("--user", "user", "--per-user", str(EACH))


def write(folder: Path, rows: int) -> list[str]:
    """Rows of a day, of some pages and of a tenth as many people: as Parquet, and as CSV."""
    rng = np.random.default_rng(0)
    pages = pa.array([f"/{page}" for page in range(PAGES)])
    people = pa.array([f"u{person}" for person in range(max(1, rows // 10))])
    columns = {
        "time": pa.array(START + np.sort(rng.integers(0, HOURS * 3600, rows))),
        "page": pages.take(pa.array(rng.integers(0, PAGES, rows))),
        "user": people.take(pa.array(rng.integers(0, len(people), rows))),
    }
    table, paths = pa.table(columns), [str(folder / name) for name in ("in.parquet", "in.csv")]
    pq.write_table(table, paths[0])
    pa_csv.write_csv(table, paths[1], pa_csv.WriteOptions(quoting_style="none"))
    return paths


def ours(path: str, people: bool) -> None:
    """The command."""
    from beam_dpcount.commands.door import console  # here: its time counts

    out = f"{path}.counts.csv"
    sys.argv[1:] = ["ticks", "--input", path, *WORDS, *PEOPLE * people, "--output", out]
    console()


def by_pandas(path: str, people: bool) -> None:
    """The same count of pandas, exact; of people, each once a page and on five pages."""
    import pandas as pd

    names = ["time", "page", *["user"] * people]
    parquet = path.endswith(".parquet")
    rows = pd.read_parquet(path, columns=names) if parquet else pd.read_csv(path, usecols=names)
    within = rows["time"].between(START, START + 3600 * HOURS, inclusive="left")
    rows = rows[rows["page"].isin([f"/{page}" for page in range(KEYS)]) & within]
    if people:
        rows = rows.sort_values(["user", "time"], kind="stable")
        rows = rows.drop_duplicates(["user", "page"])
        rows = rows[rows.groupby("user").cumcount() < EACH]
    hours = rows.groupby(["page", (rows["time"] - START) // 3600]).size()
    hours.groupby(level=0).cumsum().to_csv(f"{path}.pandas.csv")


def by_duckdb(path: str, people: bool) -> None:
    """The same of DuckDB."""
    import duckdb

    duckdb.sql("SET threads = 1")
    pages = ", ".join(f"'/{page}'" for page in range(KEYS))
    rows = f"SELECT * FROM '{path}' WHERE page IN ({pages}) AND time >= {START}"
    rows += f" AND time < {START + 3600 * HOURS}"
    if people:
        rows += " QUALIFY row_number() OVER (PARTITION BY user, page ORDER BY time) = 1"
        rows = f"SELECT * FROM ({rows})"
        rows += f" QUALIFY row_number() OVER (PARTITION BY user ORDER BY time) <= {EACH}"
    hours = f"SELECT page, (time - {START}) // 3600 AS h, count(*) AS n FROM ({rows}) GROUP BY 1, 2"
    total = f"SELECT page, h, sum(n) OVER (PARTITION BY page ORDER BY h) FROM ({hours})"
    duckdb.sql(total).write_csv(f"{path}.duckdb.csv")


WAYS: dict[str, Callable[[str, bool], None]] = {
    "ours": ours,
    "pandas": by_pandas,
    "duckdb": by_duckdb,
}


def measured(way: str, path: str, people: bool = False) -> tuple[float, float]:
    """Seconds of CPU, and the largest resident memory in MB; ImportError without the library."""
    words = [sys.executable, "-m", "benchmarks.files", way, path, *["people"] * people]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if "ModuleNotFoundError" in ran.stderr:
        raise ImportError(ran.stderr.strip().splitlines()[-1].partition(": ")[2])
    ran.check_returncode()
    seconds, peak = ran.stdout.splitlines()[-1].split()
    return float(seconds), float(peak)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one program, and print what it took."""
    way, path, *people = sys.argv[1:] if argv is None else argv
    WAYS[way](path, bool(people))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime, peak())
    return 0


if __name__ == "__main__":
    sys.exit(main())
