"""Files of many rows: commands beside programs without privacy, by pandas, DuckDB and Beam.

Each program runs in a process of its own, imports included, and prints its CPU time and peak
memory. `python -m benchmarks.files WAY TASK FILE` runs one of them. What pandas and DuckDB do not
count, per element, is beside its counter's own release of as many steps, and reading them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks.timing import peak

START, HOURS, PAGES, KEYS, EACH = 1_700_000_000, 24, 50, 4, 5
VERTICES, SPARE = 1000, 2  # a key's horizon is so many times the rows that it has on the average
_BUDGET = ("--epsilon", "1", "--delta", "1e-6", "--overwrite")
_TICKS = (
    *("ticks", "--key", "page", "--keys", *(f"/{page}" for page in range(KEYS))),
    *("--timestamp", "time", "--tick", "1h", "--start", str(START), "--horizon", str(HOURS)),
)
_PER_ROW = ("--key", "page", "--timestamp", "time")
_ACTIONS = ("view", "purchase")
# What is counted: a command line without input, output and budget; {horizon} is that of a key.
TASKS: dict[str, Sequence[str]] = {
    "ticks": _TICKS,
    "people": (*_TICKS, "--user", "user", "--per-user", str(EACH), "--per-key", "1"),
    "count": ("count", *_PER_ROW, "--where", "action=purchase", "--horizon", "{horizon}"),
    "histogram": (
        *("histogram", *_PER_ROW, "--item", "action", "--domain", *_ACTIONS),
        *("--horizon", "{horizon}"),
    ),
    "sequences": (
        *("sequences", *_PER_ROW, "--letter", "action", "--domain", *_ACTIONS),
        *("--max-length", "2", "--horizon", "{horizon}"),
    ),
    "graph": (
        *("graph", "--edge", "from", "to", "--vertices", str(VERTICES), "--what", "edges"),
        *("--horizon", "{horizon}"),
    ),
}


def write(folder: Path, rows: int) -> list[str]:
    """Rows of a day, of some pages and of a tenth as many people: as Parquet, and as CSV.

    With what was done, and an edge of a graph, in Parquet alone.
    """
    rng = np.random.default_rng(0)
    pages = pa.array([f"/{page}" for page in range(PAGES)])
    people = pa.array([f"u{person}" for person in range(max(1, rows // 10))])
    columns = {
        "time": pa.array(START + np.sort(rng.integers(0, HOURS * 3600, rows))),
        "page": pages.take(pa.array(rng.integers(0, PAGES, rows))),
        "user": people.take(pa.array(rng.integers(0, len(people), rows))),
    }
    table, paths = pa.table(columns), [str(folder / name) for name in ("in.parquet", "in.csv")]
    pa_csv.write_csv(table, paths[1], pa_csv.WriteOptions(quoting_style="none"))
    columns["action"] = pa.array(_ACTIONS).take(pa.array((rng.random(rows) < 0.2).astype(int)))
    for end in ("from", "to"):
        columns[end] = pa.array(rng.integers(0, VERTICES, rows))
    pq.write_table(pa.table(columns), paths[0])
    return paths


def ours(path: str, task: str) -> None:
    """The command."""
    from beam_dpcount.commands.door import console  # here: its time counts

    rows = 0 if path.endswith(".csv") else pq.read_metadata(path).num_rows
    horizon = str(SPARE * rows // (1 if task == "graph" else PAGES) + PAGES)
    words = [word.replace("{horizon}", horizon) for word in TASKS[task]]
    out = f"{path}.{task}.csv"
    sys.argv[1:] = [*words, "--input", path, *_BUDGET, "--output", out]
    console()


def by_pandas(path: str, task: str) -> None:
    """The same count of pandas, exact; of people, each once a page and on five pages."""
    import pandas as pd

    people, each = task == "people", task == "count"
    names = ["time", "page", *["user"] * people, *["action"] * each]
    parquet = path.endswith(".parquet")
    rows = pd.read_parquet(path, columns=names) if parquet else pd.read_csv(path, usecols=names)
    if each:
        rows = rows.sort_values(["page", "time"], kind="stable")
        pages = rows.groupby("page")["time"]
        bought = (rows["action"] == "purchase").astype("int64")
        rows = rows.assign(step=pages.cumcount() + 1, value=bought.groupby(rows["page"]).cumsum())
        rows[["page", "step", "time", "value"]].to_csv(f"{path}.pandas.csv", index=False)
        return
    within = rows["time"].between(START, START + 3600 * HOURS, inclusive="left")
    rows = rows[rows["page"].isin([f"/{page}" for page in range(KEYS)]) & within]
    if people:
        rows = rows.sort_values(["user", "time"], kind="stable")
        rows = rows.drop_duplicates(["user", "page"])
        rows = rows[rows.groupby("user").cumcount() < EACH]
    hours = rows.groupby(["page", (rows["time"] - START) // 3600]).size()
    hours.groupby(level=0).cumsum().to_csv(f"{path}.pandas.csv")


def by_duckdb(path: str, task: str) -> None:
    """The same of DuckDB."""
    import duckdb

    duckdb.sql("SET threads = 1")

    def written(query: str) -> None:
        made: Any = duckdb.sql(query)
        made.write_csv(f"{path}.duckdb.csv")

    if task == "count":
        steps = "PARTITION BY page ORDER BY time, row_number"
        read = f"SELECT *, row_number() OVER () AS row_number FROM '{path}'"
        cells = f"page, row_number() OVER ({steps}) AS step, time, "
        cells += f"sum((action = 'purchase')::INT) OVER ({steps}) AS value"
        written(f"SELECT {cells} FROM ({read}) ORDER BY page, step")
        return
    pages = ", ".join(f"'/{page}'" for page in range(KEYS))
    rows = f"SELECT * FROM '{path}' WHERE page IN ({pages}) AND time >= {START}"
    rows += f" AND time < {START + 3600 * HOURS}"
    if task == "people":
        rows += " QUALIFY row_number() OVER (PARTITION BY user, page ORDER BY time) = 1"
        rows = f"SELECT * FROM ({rows})"
        rows += f" QUALIFY row_number() OVER (PARTITION BY user ORDER BY time) <= {EACH}"
    hours = f"SELECT page, (time - {START}) // 3600 AS h, count(*) AS n FROM ({rows}) GROUP BY 1, 2"
    total = f"SELECT page, h, sum(n) OVER (PARTITION BY page ORDER BY h) FROM ({hours})"
    written(total)


def by_beam(path: str, task: str) -> None:
    """The same of a plain pipeline, of Parquet; people are not bounded."""
    import apache_beam as beam
    from apache_beam.io.parquetio import ReadFromParquet
    from apache_beam.transforms.combiners import Count

    from benchmarks.plain import quiet

    quiet()
    pages = {f"/{page}" for page in range(KEYS)}

    def hours(row: dict[str, Any]) -> Iterator[tuple[str, int]]:
        hour = (row["time"] - START) // 3600
        if row["page"] in pages and 0 <= hour < HOURS:
            yield row["page"], hour

    def running(pair: tuple[str, Any]) -> Iterator[str]:
        total = 0
        # Rows of one time come in any order.
        for step, (at, x) in enumerate(sorted(pair[1])):
            total += x
            yield f"{pair[0]},{step + 1},{at},{total}"

    def bought(row: dict[str, Any]) -> tuple[str, tuple[int, bool]]:
        return row["page"], (row["time"], row["action"] == "purchase")

    columns = ["time", "page", *["action"] * (task == "count")]
    with beam.Pipeline("FnApiRunner") as pipeline:
        rows = pipeline | ReadFromParquet(path, columns=columns)
        if task == "count":
            pairs = rows | beam.Map(bought)
        else:
            many = rows | beam.FlatMap(hours) | Count.PerElement()
            pairs = many | beam.MapTuple(lambda place, n: (place[0], (place[1], n)))
        lines = pairs | beam.GroupByKey() | beam.FlatMap(running)
        _ = lines | beam.io.WriteToText(f"{path}.beam.csv", shard_name_template="")


def in_bulk(path: str, task: str) -> None:
    """The counter's own release of all steps, of zeros, and reading the columns of it."""
    import beam_dpcount as dp

    budget, graph = dp.ApproxDP(1.0, 1e-6), task == "graph"
    rows = pq.read_metadata(path).num_rows
    horizon = SPARE * rows // (1 if graph else PAGES) + PAGES
    read = ["from", "to"] if graph else ["page", "time", "action"]
    table = pq.read_table(path, columns=read)
    counts: dict[str, Callable[[], Any]] = {
        "histogram": lambda: dp.Histogram(budget, horizon, _ACTIONS),
        "sequences": lambda: dp.SubstringCount(budget, horizon, _ACTIONS, max_length=2),
        "graph": lambda: dp.EdgeCount(budget, horizon, VERTICES),
    }
    counter = counts[task]().counter
    keys = [len(table)] if graph else np.unique(table["page"].to_numpy(), return_counts=True)[1]
    for steps in keys:
        shape = (steps,) if counter.dimension is None else (steps, counter.dimension)
        counter.release(np.zeros(shape, dtype=np.int64))


WAYS: dict[str, Callable[[str, str], None]] = {
    "ours": ours,
    "pandas": by_pandas,
    "duckdb": by_duckdb,
    "beam": by_beam,
    "bulk": in_bulk,
}


def measured(way: str, path: str, task: str = "ticks") -> tuple[float, float]:
    """Seconds of CPU, and the largest resident memory in MB; ImportError without the library."""
    words = [sys.executable, "-m", "benchmarks.files", way, task, path]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if "ModuleNotFoundError" in ran.stderr:
        raise ImportError(ran.stderr.strip().splitlines()[-1].partition(": ")[2])
    ran.check_returncode()
    seconds, peak = ran.stdout.splitlines()[-1].split()
    return float(seconds), float(peak)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one program, and print what it took."""
    way, task, path = sys.argv[1:] if argv is None else argv
    WAYS[way](path, task)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime, peak())
    return 0


if __name__ == "__main__":
    sys.exit(main())
