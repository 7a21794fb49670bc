"""Mosquitto and RabbitMQ as processes of a test, on free ports, with all of their files in its folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from debian_programs import libraries_of, unpacked

from ottla.testing import wait_until

_MOSQUITTO = ["mosquitto", "mosquitto-clients", "libmosquitto1", "libcjson1", "libdlt2", "libwrap0", "libwebsockets17"]
_ERLANG = (
    "asn1 crypto public-key mnesia runtime-tools ssl eldap ftp tftp inets os-mon parsetools syntax-tools tools xmerl"
)
_RABBITMQ = ["rabbitmq-server", "libsctp1", "erlang-base", *[f"erlang-{name}" for name in _ERLANG.split(" ")]]
_START_S = 120


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Mosquitto:
    """A broker that keeps sessions on its disk. `stop` and `start` again are a restart."""

    def __init__(self, folder: Path, *, settings: str = "") -> None:
        self._root = unpacked("mosquitto", _MOSQUITTO)
        self._environment = {**os.environ, "LD_LIBRARY_PATH": libraries_of(self._root)}
        self.port = free_port()
        folder.mkdir(exist_ok=True)
        self._config = folder / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 1000\n"
            f"persistence true\npersistence_location {folder}/\nautosave_interval 1\nuser root\n{settings}\n"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        program = self._root / "usr" / "sbin" / "mosquitto"
        self._process = subprocess.Popen(
            [program, "-c", self._config],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: _answers(self.port), timeout_s=30)

    def publish(self, topic: str, lines: str, *options: str) -> None:
        """Publish each line with `mosquitto_pub`."""
        subprocess.run(
            [self._root / "usr" / "bin" / "mosquitto_pub", "-p", str(self.port), "-t", topic, "-l", *options],
            input=lines.encode(),
            env=self._environment,
            check=True,
            timeout=60,
        )

    def publish_to(self, port: int, topic: str, lines: str, *options: str) -> None:
        """Publish to another server with `mosquitto_pub`."""
        own, self.port = self.port, port
        try:
            self.publish(topic, lines, *options)
        finally:
            self.port = own

    def stop(self, number: int = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(30)


class RabbitMq:
    """A broker with its own `epmd`, which is ended with it. `plugins` are names of those that come with it."""

    def __init__(self, folder: Path, *, plugins: Sequence[str] = ()) -> None:
        root = unpacked("rabbitmq", _RABBITMQ)
        self._erlang = _moved_erlang(root)
        self.port, self._epmd_port, node_port = free_port(), free_port(), free_port()
        folder.mkdir(exist_ok=True)
        server = next((root / "usr" / "lib" / "rabbitmq" / "lib").glob("rabbitmq_server-*"))
        for name in ("mnesia", "log", "home"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "enabled_plugins").write_text(f"[{','.join(plugins)}].\n")
        (folder / "rabbitmq.conf").write_text("")
        environment = {
            "PATH": f"{self._erlang / 'bin'}:{os.environ['PATH']}",
            "HOME": folder / "home",
            "ERL_EPMD_PORT": self._epmd_port,
            "LD_LIBRARY_PATH": libraries_of(root),
            "RABBITMQ_NODENAME": f"ottla{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_DIST_PORT": node_port,
            "RABBITMQ_MNESIA_BASE": folder / "mnesia",
            "RABBITMQ_LOG_BASE": folder / "log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "enabled_plugins",
            "RABBITMQ_CONFIG_FILE": folder / "rabbitmq",
            "RABBITMQ_CONF_ENV_FILE": folder / "no-such-file",
            "RABBITMQ_PID_FILE": folder / "pid",
            "RABBITMQ_HOME": server,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
        }
        self._environment = {**os.environ, **{name: str(value) for name, value in environment.items()}}
        self._server = server
        self._log = folder / "out.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._epmd = subprocess.Popen(
            [self._erlang / "bin" / "epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._server / "sbin" / "rabbitmq-server"],
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(lambda: _answers(self.port), timeout_s=_START_S)

    def stop(self, number: int = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            try:
                os.killpg(process.pid, number)
                process.wait(60)
            except ProcessLookupError:
                pass
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)

    def close(self) -> None:
        self.stop(signal.SIGKILL)
        self._epmd.kill()
        self._epmd.wait(10)

    def control(self, *arguments: str) -> None:
        """Run `rabbitmqctl`."""
        command = [str(self._server / "sbin" / "rabbitmqctl"), "-n", self._environment["RABBITMQ_NODENAME"], *arguments]
        subprocess.run(command, env=self._environment, check=True, capture_output=True, timeout=_START_S)

    def channel(self) -> Any:
        """A blocking channel of pika; the caller closes its connection."""
        import pika

        parameters = pika.ConnectionParameters("127.0.0.1", self.port, connection_attempts=20, retry_delay=1)
        return pika.BlockingConnection(parameters).channel()


def _moved_erlang(root: Path) -> Path:
    """Erlang's folder, whose script knows where it is."""
    erlang = root / "usr" / "lib" / "erlang"
    script = erlang / "bin" / "erl"
    text = script.read_text()
    moved = re.sub(r"ROOTDIR=/usr/lib/erlang\b", f"ROOTDIR={erlang}", text)
    if moved != text:
        copy = script.with_suffix(f".{os.getpid()}")
        copy.write_text(moved)
        shutil.copymode(script, copy)
        copy.rename(script)
    return erlang


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
