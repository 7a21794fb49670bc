"""A standalone cluster of Spark in processes of its own: a master, two workers, and drivers that tests give jobs to.

Workers listen on two addresses of this machine: Spark starts no speculative copy of a task on the host of the first.
Executors have another Python than the driver's program, whose own fails in their folders: `PYSPARK_PYTHON` must be what
they start.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from spark_processes import QUICK, SHORT_LIVED

WAIT_S = 180
HOSTS = ("127.0.0.1", "127.0.0.2")
HOME = Path(pyspark.__file__).parent
DRIVER = Path(__file__).with_name("spark_cluster_driver.py")


def until(reached: Callable[[], Any], what: object = "") -> Any:
    """Wait for a condition, and return what it found."""
    deadline = time.monotonic() + WAIT_S
    while not (found := reached()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.02)
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class JvmProcess:
    """A master or a worker. It writes to a log, and can be killed."""

    def __init__(self, cluster: SparkCluster, name: str, main: str, host: str, arguments: list[str]) -> None:
        self.log = cluster.folder / f"{name}.log"
        environment = os.environ | {"SPARK_LOCAL_IP": host, "SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13"}
        for inherited in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
            environment.pop(inherited, None)
        command = [str(cluster.java), *SHORT_LIVED.split(), "-Xmx256m", "-cp", f"{HOME}/jars/*"]
        with self.log.open("a") as output:
            self.process = subprocess.Popen(
                [*command, f"org.apache.spark.deploy.{main}", *arguments],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class SparkCluster:
    """Master and workers; `executors()` are the process ids of what workers have started."""

    def __init__(self, folder: Path) -> None:
        from ottla.spark.jvm.java import find_java, java_home

        self.folder, self.java = folder, java_home(find_java()) / "bin" / "java"
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.driver: Driver | None = None
        self.starts = 0
        self.pythons = folder / "pythons.log"
        work = shlex.quote(str(folder / "work"))
        refuse = f'case "$PWD" in {work}*) echo "this machine has no such Python" >&2; exit 127 ;; esac\n'
        self.driver_python = self._python("driver-python", refuse)
        self.executor_python = self._python("executor-python", "")
        self.master = self.start_master()
        self.workers = [self.start_worker(host) for host in HOSTS]

    def start_master(self) -> JvmProcess:
        arguments = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        master = JvmProcess(self, "master", "master.Master", "127.0.0.1", arguments)
        until(lambda: _listens("127.0.0.1", self.port), master.log.read_text)
        return master

    def start_worker(self, host: str) -> JvmProcess:
        arguments = ["--host", host, "--cores", "1", "--memory", "1536m", "--webui-port", "0"]
        arguments += ["--work-dir", str(self.folder / "work" / host), self.url]
        return JvmProcess(self, f"worker-{host}", "worker.Worker", host, arguments)

    def executors(self) -> list[int]:
        """Return the executors that run, by their workers."""
        return [pid for worker in self.workers for pid in _children(worker.process.pid)]

    def kill_one_with_shuffle_files(self) -> None:
        """Kill an executor that wrote files of the newest shuffle. Those of former ones may be there, too."""
        shuffles = {pid: max(_shuffles(pid), default=-1) for pid in self.executors()}
        victim = max(shuffles, key=lambda pid: shuffles[pid])
        assert shuffles[victim] >= 0, "no executor has shuffle files"
        os.kill(victim, signal.SIGKILL)

    def kill_executors(self) -> None:
        """Kill those that run, once there are any. Workers start others."""
        for pid in until(self.executors):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def replace_workers(self) -> None:
        """Kill the workers with their executors, and start others in their place."""
        executors = self.executors()
        for worker in self.workers:
            worker.kill()
        for pid in executors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.workers = [self.start_worker(host) for host in HOSTS]

    def only_driver(self, **config: str) -> Driver:
        """Return the driver that runs with this configuration, or a new one, after the end of the one before."""
        if self.driver is None or not self.driver.is_alive or self.driver.config != config:
            self.close_driver()
            self.starts += 1
            self.driver = Driver(self, config)
        return self.driver

    def close_driver(self) -> None:
        """End the driver: the next application gets the executors."""
        if self.driver is not None:
            self.driver.kill()
        self.driver = None

    def close(self) -> None:
        self.close_driver()
        executors = self.executors()
        for part in (*self.workers, self.master):
            part.kill()
        for pid in executors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _python(self, name: str, first: str) -> Path:
        program = self.folder / name
        log = shlex.quote(str(self.pythons))
        program.write_text(f'#!/bin/sh\n{first}echo "{name} $PWD" >> {log}\nexec {shlex.quote(sys.executable)} "$@"\n')
        program.chmod(0o755)
        return program


class Driver:
    """A driver's process with one session; it runs one job of `spark_cluster_driver.py` after the other."""

    def __init__(self, cluster: SparkCluster, config: dict[str, str]) -> None:
        self.config = config
        self.log = cluster.folder / f"driver-{cluster.starts}.log"
        settings = QUICK | {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.pollingDelay": "10ms",
            "spark.task.maxFailures": "8",
        }
        environment = os.environ | {
            "PYSPARK_PYTHON": str(cluster.executor_python),
            "PYSPARK_DRIVER_PYTHON": str(cluster.driver_python),
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(DRIVER), cluster.url, json.dumps(settings | config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        self._answer()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def run(self, job: str, **arguments: Any) -> Any:
        """Run a job, and return what it answers."""
        self.begin(job, **arguments)
        return self._answer()

    def begin(self, job: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([job, arguments]) + "\n")
        self.process.stdin.flush()

    def end(self) -> Any:
        """Return what the job answers that was begun."""
        return self._answer()

    def end_or_error(self) -> str | None:
        """Return what the job that was begun failed with; None if it did not."""
        kind, answer = self._line()
        return str(answer) if kind == "failed" else None

    def kill(self) -> None:
        """As `kill -9` would, the JVM too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()

    def _answer(self) -> Any:
        kind, answer = self._line()
        assert kind == "done", answer + self.log.read_text()[-2_000:]
        return answer

    def _line(self) -> tuple[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the driver has ended: {self.log.read_text()[-4_000:]}"
        kind, answer = json.loads(line)
        return kind, answer


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return []


def _shuffles(pid: int) -> set[int]:
    """Return the numbers of the shuffles of which an executor's folders have files."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    (folders,) = [
        value for name, _, value in (entry.partition("=") for entry in entries) if name == "SPARK_EXECUTOR_DIRS"
    ]
    files = [file for folder in folders.split(os.pathsep) for file in Path(folder).glob("blockmgr-*/*/shuffle_*.index")]
    return {int(file.name.split("_")[1]) for file in files}


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
