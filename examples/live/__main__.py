"""A live page of private counts: `python -m examples.live`.

Writes a made log of web requests, counts it on Prism while it grows, and shows what was released at
http://127.0.0.1:8765. Kill it and give the same command again: it reads the log from its start, and
goes on.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines import prism
from engines.cache import UnavailableError
from examples.live import count, page
from examples.live.metrics import MissingError, exporter
from examples.live.publish import DELAY, Publisher
from examples.live.settings import Home, Settings

ROOT = Path(__file__).resolve().parents[2]
# What the page says of each column: a title, and the unit.
TITLES = {
    "count": ("Requests so far", ""),
    "people": ("People so far", ""),
    "mean_latency": ("Mean latency so far", "s"),
    "p95_latency": ("Latency that 95 % stay below", "s"),
    "mean_failed": ("Failed requests so far", "%"),
}


def about(settings: Settings, home: Home) -> dict[str, Any]:
    """What the page says of the run: public parameters alone."""
    made = count.aggregate(settings, home.key_file)
    shown = [
        {"name": name, "title": TITLES[name][0], "unit": TITLES[name][1]} for name in made.columns
    ]
    return {
        "panels": shown,
        "keys": list(settings.services),
        "tick": settings.tick,
        "horizon": settings.horizon,
        "start": settings.start,
        "delay": DELAY,
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "events": settings.events,
        "per_key": settings.per_key,
        "confidence": made.confidence,
        # Without where the secret is: an absolute path names people and machines.
        "parameters": {
            name: str(text) for name, text in made.display_data().items() if name != "entropy"
        },
    }


def start(module: str, home: Home, *words: str) -> subprocess.Popen[bytes]:
    """A process of ours, which ends with this one; its messages are private."""
    command = [sys.executable, "-m", f"examples.live.{module}", *words, "--end-with-input"]
    with home.messages(module).open("ab") as out:
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=out, stderr=out)


def run(options: argparse.Namespace) -> int:
    """All of it; the exit status."""
    home = Home(options.output.resolve())
    wanted = {"tick": options.tick, "rate": options.rate}
    settings = home.begin(wanted, options.seconds)
    lock = os.open(home.private, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"the run in {home.path} is running already") from None
    publisher = Publisher(
        *(settings.services, settings.horizon, home.seen, home.record), home.messages("publish")
    )
    try:
        routes = {"/metrics": exporter(publisher)}
    except MissingError as missing:
        routes = {}
        print(f"no /metrics for Prometheus: {missing}")
    server = page.serve(publisher, about(settings, home), options.port, routes)
    print(f"http://127.0.0.1:{server.server_address[1]}/", flush=True)
    started = {}
    if not publisher.over:
        log = str(home.log), f"--stop={settings.stop * 1000}", f"--rate={settings.rate}"
        started["writer"] = start("writer", home, *log)
        started["count"] = start("count", home, str(home.path), f"--seen={home.seen}")
    publisher.start()
    try:
        while publisher.is_alive():
            publisher.join(1)
            for name, process in started.items():
                if process.poll() not in (None, 0):
                    print(f"{name} has stopped; {home.messages(name)}, which is private, says why")
                    return 1
        if publisher.failed is not None or not publisher.over:
            print(publisher.failed)
            return 1
        print(f"over: {settings.horizon} ticks are in {home.record}", flush=True)
        while not options.exit:
            time.sleep(1)
    except KeyboardInterrupt:
        print("stopped: the same command goes on")
    finally:
        for process in started.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
        server.shutdown()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.live", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("out/live"),
        metavar="DIR",
        help="where the run lives (default out/live)",
    )
    parser.add_argument(
        "--seconds", type=int, default=600, help="how long a new run goes (default 600)"
    )
    parser.add_argument("--tick", type=int, default=2, help="seconds between releases (default 2)")
    parser.add_argument(
        "--rate", type=float, default=60, help="made requests a second (default 60)"
    )
    parser.add_argument("--port", type=int, default=8765, help="of the page (default 8765; 0: any)")
    parser.add_argument("--exit", action="store_true", help="end once the last tick is out")
    options = parser.parse_args(argv)
    try:
        prism.build()
        return run(options)
    except UnavailableError as missing:
        print(f"Prism is needed: {missing}", file=sys.stderr)
        return 3
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
