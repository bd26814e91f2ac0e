"""A standalone Flink cluster on this machine, and Python workers, reachable over loopback only."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from typing_extensions import Self

from engines.servers import ROOT, Process, free_port, listening, wait
from tests.engines.flink import install

JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
# What Flink reads by reflection, and Java 17 closes.
PACKAGES = (
    *("lang", "lang.reflect", "net", "io", "nio", "text", "time"),
    *("util", "util.concurrent", "util.concurrent.atomic"),
)
OPENS = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in PACKAGES]
LOGGING = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} %m%n
"""
# Flink's own scripts work these out; without them they must all be given.
MEMORY = {
    "taskmanager.memory.framework.heap.size": "128m",
    "taskmanager.memory.task.heap.size": "384m",
    "taskmanager.memory.managed.size": "64m",
    "taskmanager.memory.network.min": "192m",
    "taskmanager.memory.network.max": "192m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.task.off-heap.size": "256m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "128m",
    "taskmanager.memory.jvm-overhead.max": "128m",
    "taskmanager.cpu.cores": "1.0",
}


def java(main: str, *arguments: str, jvm: Iterable[str] = (), classpath: str = "") -> list[str]:
    """The command of a Java program, by default with Flink and our translation at hand."""
    return [
        "java",
        "-XX:+UseSerialGC",
        *jvm,
        *OPENS,
        "-classpath",
        classpath or install.classpath(),
        main,
        *arguments,
    ]


class Cluster:
    """A JobManager and TaskManagers, while the block lasts.

    Args:
      work: where its files go: checkpoints, savepoints, logs; made if need be.
      slots: of a TaskManager, one for each pipeline that runs at a time.
      restarts: of a job, before it has failed.
      classpath: of its processes, instead of Flink and our translation.
      heap: MB of a TaskManager, which holds all state.
      missed: seconds without a sign of life after which a TaskManager counts as dead.
    """

    def __init__(
        self,
        work: Path,
        slots: int = 2,
        restarts: int = 1_000_000,
        classpath: str = "",
        heap: int = 512,
        missed: int = 3,
    ) -> None:
        self.work, self.slots, self.restarts = work.resolve(), slots, restarts
        self.heap, self.missed = heap, missed
        self.classpath = classpath
        self.rest = free_port()
        self.task_managers: list[Process] = []

    @property
    def savepoints(self) -> str:
        """Where they go, as Flink names it."""
        return (self.work / "savepoints").as_uri()

    def __enter__(self) -> Self:
        for name in ("conf", "tmp"):
            (self.work / name).mkdir(parents=True, exist_ok=True)
        settings = {
            "jobmanager.rpc.address": "localhost",
            "jobmanager.rpc.port": free_port(),
            "jobmanager.bind-host": "localhost",
            "jobmanager.memory.process.size": "1024m",
            "taskmanager.bind-host": "localhost",
            "taskmanager.host": "localhost",
            "taskmanager.numberOfTaskSlots": self.slots,
            "rest.address": "localhost",
            "rest.bind-address": "localhost",
            "rest.port": self.rest,
            "execution.checkpointing.dir": (self.work / "checkpoints").as_uri(),
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.num-retained": 2,
            # A TaskManager that died is missed within seconds.
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": self.restarts,
            "restart-strategy.fixed-delay.delay": "200 ms",
            "heartbeat.interval": 500,
            "heartbeat.timeout": self.missed * 1000,
            "cluster.registration.error-delay": 500,  # of a TaskManager that was there first
            "web.refresh-interval": 200,  # milliseconds by which REST's answers may be old
            "io.tmp.dirs": self.work / "tmp",
        }
        lines = [f"{name}: {value}\n" for name, value in settings.items()]
        (self.work / "conf" / "config.yaml").write_text("".join(lines))
        (self.work / "conf" / "log4j.properties").write_text(LOGGING)
        self.add_job_manager()
        try:
            self.add_task_manager()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.task_managers, self.job_manager):
            process.kill()

    def add_job_manager(self) -> None:
        """Start one where the last one was, of whose jobs it knows nothing."""
        self.job_manager = self._java("jobmanager", JOB_MANAGER, jvm=["-Xmx384m"])

    def add_task_manager(self) -> Process:
        """Start one, and wait until its slots are offered."""
        extra = [word for pair in MEMORY.items() for word in ("-D", "=".join(pair))]
        name = f"taskmanager-{len(self.task_managers) + 1}"
        sizes = [f"-Xmx{self.heap}m", "-XX:MaxDirectMemorySize=576m"]
        process = self._java(name, TASK_MANAGER, *extra, jvm=sizes)
        self.task_managers.append(process)
        alive = sum(each.running() for each in self.task_managers)
        ready = lambda: self.get("/overview")["slots-total"] >= alive * self.slots  # noqa: E731
        wait(ready, (self.job_manager, process), "the cluster")
        return process

    def get(self, path: str) -> Any:
        """What Flink's REST interface answers."""
        return self.ask(path, None)

    def ask(self, path: str, body: dict[str, Any] | None, method: str | None = None) -> Any:
        """The same with something to do, which is sent as JSON."""
        request = urllib.request.Request(
            f"http://localhost:{self.rest}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def _java(self, name: str, main: str, *arguments: str, jvm: Iterable[str]) -> Process:
        conf = self.work / "conf"
        logging = f"-Dlog4j.configurationFile={(conf / 'log4j.properties').as_uri()}"
        words = "--configDir", str(conf), *arguments
        command = java(main, *words, jvm=(*jvm, logging), classpath=self.classpath)
        plugins = {"FLINK_PLUGINS_DIR": str(install.flink() / "plugins")}
        return Process(command, self.work / f"{name}.log", plugins)


class Workers(Process):
    """Python workers outside the submitter, one more for each that a job asks for.

    Args:
      work: where the log goes; made if need be.
      environment: of the workers, on top of this process's.
      first: directories that they import from before all others.
      cache: MB of state that each may keep from bundle to bundle.
    """

    def __init__(
        self,
        work: Path,
        environment: Mapping[str, str] | None = None,
        first: Iterable[Path] = (),
        cache: int = 0,
    ) -> None:
        self.port = free_port()
        work.mkdir(parents=True, exist_ok=True)
        # Beam starts workers as `python`: that must be this one, and see this repository.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        given = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        places = os.pathsep.join([*map(str, first), str(ROOT), *given])
        super().__init__(
            [sys.executable, "-m", "tests.engines.flink.workers", str(self.port), str(cache)],
            work / "workers.log",
            {"PATH": path, "PYTHONPATH": places, **(environment or {})},
        )

    def __enter__(self) -> Self:
        try:
            wait(lambda: listening(self.port), (self,), "the worker pool")
        except BaseException:
            self.kill()
            raise
        return self

    @property
    def flags(self) -> tuple[str, ...]:
        """Beam's, for pipelines that are to use them."""
        address = f"--environment_config=localhost:{self.port}"
        return "--environment_type=EXTERNAL", address

    def pids(self) -> list[int]:
        """The process ids of its workers now."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")  # each thread has its own
        return [int(pid) for task in tasks for pid in task.read_text().split()]
