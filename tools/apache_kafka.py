"""Apache Kafka itself, from its packages on the Maven registry, as processes that end with their `with` block, and
with the process that started them.

The contract suite runs on it and the benchmarks measure beside it. Needs Java 17 and Maven; the packages are copied
once into a cache below the user's home. Nothing here is used by the product.

    python tools/apache_kafka.py [--brokers 3] [--version 4.1.0]     start it, print its address, stop at Ctrl-C

The environment variable KAFKA names the Kafka of a test run: `real` is the newest version that can be had, a version
such as `4.1.0` or `3.9.1` is that one (from 3.0 on: older ones do not start in KRaft mode), anything else is the
embedded broker.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from watchdog import Watchdog

VERSIONS = ("4.4.0", "4.1.0")
"""The newest first. The contract holds on all of them, but for what docs/reference/differences.md names."""
CLIENT_VERSIONS = ("3.9.1", "3.3.2")
"""Kafka 3, the newest and the first whose KRaft mode is no preview: the client side of the contract is tested on it."""
TOOLS_VERSIONS = {"4.4.0": "4.3.1"}
"""Kafka's command line tools, where the registry lacks those of the same version."""
KEPT_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
"""Of a `data_dir` that the caller keeps: a node refuses a folder that another cluster has written."""
_PLAIN_LISTENERS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
START_TIMEOUT_S = 90.0


class Unavailable(Exception):
    """Apache Kafka cannot be had here; the message says what is missing."""


def wanted() -> str | None:
    """The version of Apache Kafka that this run is to use; None for the embedded broker. Unavailable: none is here."""
    asked = os.environ.get("KAFKA", "")
    if asked != "real":
        return asked if asked[:1].isdigit() else None
    return newest()


def newest() -> str:
    """The newest version that can be had here. Unavailable says why there is none."""
    for version in VERSIONS[:-1]:
        try:
            libraries(version)
            return version
        except Unavailable:
            pass
    libraries(VERSIONS[-1])
    return VERSIONS[-1]


def libraries(version: str | None = None) -> Path:
    """The folder with the jars of Kafka's broker and clients, fetched once. Unavailable says what is missing."""
    return _fetched("apache-kafka", version or newest(), "kafka_2.13")


def tools(version: str | None = None) -> Path:
    """The folder with the jars of Kafka's command line tools, fetched once. Unavailable says what is missing."""
    version = version or newest()
    return _fetched("apache-kafka-tools", TOOLS_VERSIONS.get(version, version), "kafka-tools")


def run_tool(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's command line tools, on whatever cluster; what it printed. RuntimeError if it failed."""
    return _run(tools(), main_class, *arguments)


def _run(jars: Path, main_class: str, *arguments: str) -> str:
    command = [*_java("-Xmx256m", jars), main_class, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"{main_class} {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _java(heap: str, jars: Path) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", heap, quiet, "-cp", f"{jars}/*"]


def _fetched(name: str, version: str, artifact: str) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ottla" / f"{name}-{version}"
    if (folder / "complete").exists():
        return folder
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not on the PATH: Apache Kafka {version} comes from Maven and runs on Java")
    folder.mkdir(parents=True, exist_ok=True)
    pom = Path(__file__).with_suffix(".xml")
    chosen = [f"-DoutputDirectory={folder}", f"-Dkafka.artifact={artifact}", f"-Dkafka.version={version}"]
    try:
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *chosen],
            capture_output=True,
            text=True,
            timeout=600,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable("Maven did not answer within 600 s") from None
    if done.returncode != 0:
        reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr.strip())
        raise Unavailable(f"Maven could not copy Apache Kafka {version}: {reason[:300]}")
    (folder / "complete").touch()
    return folder


_ASSIGNED_AT_ONCE = ("group.consumer.assignment.interval.ms", "group.share.assignment.interval.ms")


class ApacheKafka:
    """Combined brokers and controllers (KRaft) on loopback, in a temporary folder unless `data_dir` is given."""

    def __init__(
        self,
        brokers: int = 1,
        config: Mapping[str, object] | None = None,
        *,
        data_dir: Path | None = None,
        client: Mapping[str, str] | None = None,
        version: str | None = None,
        log_dirs: int = 1,
        address: str | None = None,
    ) -> None:
        """`client`: what a client needs besides the address, if the listener asks who it is. `version`: the one that
        this run wants, or the newest that can be had. `log_dirs`: how many each broker has. `address`: where clients
        find it, if `config` has listeners."""
        self.version = version or wanted() or newest()
        self._libraries = libraries(self.version)
        self._temporary = Path(tempfile.mkdtemp(prefix="ottla-apache-kafka-"))
        self.data_dir = data_dir or self._temporary
        self._nodes = range(1, brokers + 1)
        ports = _free_ports(2 * brokers)
        self._ports = dict(zip(self._nodes, ports[:brokers], strict=True))
        self._controller_ports = dict(zip(self._nodes, ports[brokers:], strict=True))
        self._config = dict(config or {})
        self._client = dict(client or {})
        self._log_dirs = log_dirs
        self._address = address
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._watchdog: Watchdog | None = None

    @property
    def bootstrap_servers(self) -> str:
        return self._address or ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def __enter__(self) -> Self:
        self._watchdog = Watchdog(self._temporary)
        try:
            cluster_id = KEPT_CLUSTER_ID if self.data_dir is not self._temporary else _new_id()
            for node in self._nodes:
                self._write_properties(node)
                formatting = ["format", f"--cluster-id={cluster_id}", "--ignore-formatted"]
                self.tool("kafka.tools.StorageTool", *formatting, "-c", str(self._properties(node)))
            for node in self._nodes:
                self.start(node)
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
        shutil.rmtree(self._temporary, ignore_errors=True)

    def start(self, node: int) -> None:
        """Start one node (again)."""
        log = (self._temporary / f"node-{node}.log").open("ab")
        with log:
            self._processes[node] = subprocess.Popen(
                [*_java("-Xmx1g", self._libraries), "kafka.Kafka", str(self._properties(node))],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guard()

    def kill(self, node: int) -> None:
        """`kill -9`."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()
        self._guard()

    def _guard(self) -> None:
        if self._watchdog is not None:
            self._watchdog.guard(self.pids())

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def tool(self, main_class: str, *arguments: str) -> str:
        """Run one of Kafka's command line tools; what it printed. RuntimeError if it failed."""
        jars = self._libraries if main_class.startswith("kafka.") else tools(self.version)
        return _run(jars, main_class, *arguments)

    def dump(self, *arguments: str) -> str:
        """What Kafka's tool for log segments printed."""
        package = "kafka.tools" if self.version < "4.4" else "org.apache.kafka.tools"
        return self.tool(f"{package}.DumpLogSegments", *arguments)

    def _properties(self, node: int) -> Path:
        return self._temporary / f"node-{node}.properties"

    def _log_dirs_of(self, node: int) -> list[Path]:
        whole = self.data_dir / f"broker-{node}"
        return [whole] if self._log_dirs == 1 else [whole / f"dir-{number}" for number in range(self._log_dirs)]

    def _write_properties(self, node: int) -> None:
        count = len(self._nodes)
        settings: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": ",".join(
                f"{other}@127.0.0.1:{port}" for other, port in self._controller_ports.items()
            ),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node]},"
            f"CONTROLLER://127.0.0.1:{self._controller_ports[node]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node]}",
            "controller.listener.names": "CONTROLLER",
            # Kafka 3.0 has no default for the controllers' listener.
            **({"listener.security.protocol.map": _PLAIN_LISTENERS} if self.version < "3.1" else {}),
            "log.dirs": ",".join(map(str, self._log_dirs_of(node))),
            "offsets.topic.replication.factor": min(3, count),
            "transaction.state.log.replication.factor": min(3, count),
            "transaction.state.log.min.isr": min(2, count),
            "share.coordinator.state.topic.replication.factor": min(3, count),
            "share.coordinator.state.topic.min.isr": min(2, count),
            "group.initial.rebalance.delay.ms": 0,
            **(dict.fromkeys(_ASSIGNED_AT_ONCE, 0) if self.version >= "4.4" else {}),
            **self._config,
        }
        self._properties(node).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def _wait(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0, **self._client})
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            dead = [node for node, process in self._processes.items() if process.poll() is not None]
            if dead:
                log = (self._temporary / f"node-{dead[0]}.log").read_text(errors="replace")
                raise RuntimeError(f"Apache Kafka's node {dead[0]} ended while it started:\n{log[-3000:]}")
            try:
                # A broker can be in the metadata of the others before it listens.
                is_complete = len(admin.list_topics(timeout=1).brokers) == len(self._nodes)
                if is_complete and (self._address is not None or all(map(_listens, self._ports.values()))):
                    return
            except KafkaException:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"Apache Kafka did not start within {START_TIMEOUT_S:g} s")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def _new_id() -> str:
    import base64

    return base64.urlsafe_b64encode(uuid4().bytes).rstrip(b"=").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Run Apache Kafka on loopback until Ctrl-C.")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument(
        "--version", choices=VERSIONS + CLIENT_VERSIONS, help="the newest that can be had, unless it is given"
    )
    options = parser.parse_args()
    try:
        with ApacheKafka(options.brokers, version=options.version) as kafka:
            sys.stdout.write(f"ready bootstrap={kafka.bootstrap_servers}\n")
            sys.stdout.flush()
            signal.pause()
    except Unavailable as reason:
        sys.exit(str(reason))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
