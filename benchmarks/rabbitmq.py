"""RabbitMQ beside Ottla: priorities and times to live, by its own means.

Its server is Debian's package (`apt-get install rabbitmq-server`), started here in a folder of its own with ports of
its own, and ended with its `with` block. Its client is pika (`benchmarks/peers.txt`). Where one of them is missing, the
reason is on the page.

A durable classic queue with `x-max-priority`, persistent messages, an acknowledgement for each, at most 50 handed out
ahead (`prefetch_count`). What it guarantees: a message that was not acknowledged comes again; the highest priority goes
first for as long as it has any; a message whose time is over is discarded at the head of its queue, and not where the
client has it already.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from servers import Missing

CONTENDER = "RabbitMQ (pika)"
PREFETCH: Final = 50
HIGHEST: Final = 2
_START_S: Final = 120.0
_LAST = b""
"""What tells a consumer that nothing comes any more. It has the lowest priority, and comes last."""


@contextlib.contextmanager
def server() -> Iterator[int]:
    """The port of a RabbitMQ that ends with the block. Raises `Missing` with the reason where there is none."""
    if importlib.util.find_spec("pika") is None:
        raise Missing("pika is not installed (benchmarks/peers.txt)")
    program = next(iter(sorted(Path("/usr/lib/rabbitmq/lib").glob("*/sbin/rabbitmq-server"))), None)
    epmd = shutil.which("epmd")
    if program is None or epmd is None:
        raise Missing("its server is not installed (Debian: apt-get install rabbitmq-server)")
    as_user = {"user": "rabbitmq", "group": "rabbitmq", "extra_groups": []} if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="ottla-rabbitmq-"))
    if as_user:
        shutil.chown(folder, "rabbitmq", "rabbitmq")
    port, names_port, node_port = _free_ports(3)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RABBITMQ_")},
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(node_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none-env.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "none-advanced"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SCHEMA_DIR": str(folder / "schema"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "config"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for command in ([epmd, "-port", str(names_port), "-address", "127.0.0.1"], [str(program)]):
            # The names daemon is a child of ours: one that the server starts would stay behind.
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                **as_user,  # type: ignore[arg-type]
            )
            stack.callback(_end, process)
        _await(port, process, folder)
        yield port


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 15)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait(20)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _await(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    give_up_s = time.monotonic() + _START_S
    while True:
        try:
            # Not yet with its client, which logs a stack of errors for every try.
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.settimeout(5)
                connection.sendall(b"AMQP\0\0\x09\x01")
                if connection.recv(1):
                    return
            raise ConnectionError("it hung up")
        except OSError as error:
            if process.poll() is not None or time.monotonic() > give_up_s:
                logged = "".join(path.read_text(errors="replace")[-1_000:] for path in folder.glob("log/*.log"))
                raise Missing(f"it did not start: {error!r} {logged}") from None
        time.sleep(0.2)


@contextlib.contextmanager
def _channel(port: int) -> Iterator[Any]:
    import pika  # type: ignore[import-not-found,unused-ignore]

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
    try:
        yield connection.channel()
    finally:
        connection.close()


class Queue:
    """A queue with priorities, what is sent to it and who consumes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.name = f"bench-{uuid.uuid4().hex[:8]}"
        with _channel(port) as channel:
            channel.queue_declare(self.name, durable=True, arguments={"x-max-priority": HIGHEST})

    @contextlib.contextmanager
    def sender(self) -> Iterator[Any]:
        """send(value, priority=0, expires_ms=None)"""
        import pika

        with _channel(self._port) as channel:

            def send(value: bytes, priority: int = 0, expires_ms: int | None = None) -> None:
                expiration = None if expires_ms is None else str(expires_ms)
                properties = pika.BasicProperties(delivery_mode=2, priority=priority, expiration=expiration)
                channel.basic_publish("", self.name, value, properties)

            yield send

    def fill(self, records: int, value: bytes, priority: int = 0) -> None:
        """Put so many messages there, and wait until the queue has them."""
        with _channel(self._port) as channel:
            before = channel.queue_declare(self.name, passive=True).method.message_count
            with self.sender() as send:
                for _ in range(records):
                    send(value, priority)
            while channel.queue_declare(self.name, passive=True).method.message_count < before + records:
                time.sleep(0.01)

    def consume(self, handle: Any) -> threading.Thread:
        """Hand every message to `handle(value, priority)`, in a thread, until one is `_LAST` or it returns True."""

        def run() -> None:
            with _channel(self._port) as channel:
                channel.basic_qos(prefetch_count=PREFETCH)

                def on_message(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
                    is_over = body == _LAST or handle(body, properties.priority or 0)
                    channel.basic_ack(method.delivery_tag)
                    if is_over:
                        channel.stop_consuming()

                channel.basic_consume(self.name, on_message)
                channel.start_consuming()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread


def overtaking(port: int, backlog: int, *, value: bytes, urgent: int, every_s: float, work_s: float) -> list[float]:
    """Measure how long each of several urgent messages waits from its send while `backlog` is being consumed."""
    queue = Queue(port)
    queue.fill(backlog, value)
    waits: list[float] = []
    handled = bytearray()

    def handle(body: bytes, priority: int) -> bool:
        if priority:
            waits.append(time.time() - float(body))
        else:
            handled.append(1)
            work(work_s)
        return len(waits) == urgent

    thread = queue.consume(handle)
    while len(handled) < 2 * PREFETCH:
        time.sleep(0.001)
    with queue.sender() as send:
        for _ in range(urgent):
            send(b"%f" % time.time(), HIGHEST)
            time.sleep(every_s)
    thread.join()
    if len(handled) == backlog:
        raise SystemExit("RabbitMQ's bulk ran out before the urgent messages did: give it a longer backlog")
    return waits


def draining(port: int, records: int, *, value: bytes, work_s: float) -> tuple[float, bytearray]:
    """(messages per second, the priority of each, 0 the highest) of a backlog of three priorities."""
    queue = Queue(port)
    for priority in range(HIGHEST + 1):
        queue.fill(records // 3, value, priority)
    seen = bytearray()
    total = records // 3 * 3

    def handle(_body: bytes, priority: int) -> bool:
        seen.append(HIGHEST - priority)
        work(work_s)
        return len(seen) == total

    started_s = time.perf_counter()
    queue.consume(handle).join()
    return total / (time.perf_counter() - started_s), seen


def expiring(port: int, records: int, *, ttl_s: float, handle_s: float) -> list[float]:
    """How old each message is that a handler gets which takes so long for one, when all are sent together."""
    queue = Queue(port)
    ages: list[float] = []

    def handle(body: bytes, _priority: int) -> bool:
        ages.append(time.time() - float(body))
        time.sleep(handle_s)
        return False

    with queue.sender() as send:
        for _ in range(records):
            send(b"%f" % time.time(), expires_ms=round(ttl_s * 1_000))
        send(_LAST)
    queue.consume(handle).join()
    return ages


def work(seconds: float) -> None:
    """What a handler does."""
    until_s = time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        pass
