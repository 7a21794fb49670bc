"""What tests of the bridge share."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

from mqtt_client import StrictClient

from ottla.bridge.mqtt.codes import V311, Property
from ottla.testing import Kafka, wait_until


def values(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    """The values of a topic, once there are so many."""
    found: list[bytes] = []

    def are_there() -> bool:
        found[:] = [record.value for record in kafka.consume_all(topic)]
        return len(found) >= count

    wait_until(are_there)
    return found


def user_line(name: str, password: str, salt: bytes) -> str:
    """A user's line, as `mosquitto_passwd` writes it."""
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101, 64)
    return f"{name}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


class KeptLog:
    """The log of an `EmbeddedRegistry` whose schemas are there again after a restart."""

    def __init__(self) -> None:
        self._records: list[Any] = []

    def replay(self) -> list[Any]:
        return self._records

    def append(self, records: Sequence[Any]) -> None:
        self._records.extend(records)


Start = Callable[..., subprocess.Popen[str]]
"""Starts `ottla bridge mqtt` and returns once it listens."""


class Publisher:
    """Publishes numbers at QoS 1 and 2, comes back after each loss, and knows what was acknowledged."""

    def __init__(self, port: int, version: int, name: str) -> None:
        self._port = port
        self._version = version
        self.name = name
        self.acknowledged: set[int] = set()
        self._next = 0
        self._stopping = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def stop(self) -> None:
        self._stopping.set()
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.error is None, self.error

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._connection()
                except (OSError, EOFError):
                    self._stopping.wait(0.05)
        except BaseException as error:  # an acknowledgement out of order, say
            self.error = error

    def _connection(self) -> None:
        properties = {Property.SESSION_EXPIRY: 60} if self._version != V311 else {}
        with StrictClient(self._port, self.name, version=self._version, clean_start=False, properties=properties) as c:
            while not self._stopping.is_set():
                numbers = range(self._next, self._next + 20)
                self._next += 20
                sent = {c.publish(f"{self.name}/{number % 5}", b"%d" % number, qos=1): number for number in numbers}
                for _ in numbers:
                    self.acknowledged.add(sent[c.ack().packet_id])


def missing(publishers: Sequence[Publisher], kafka: Kafka, topic: str = "m") -> set[tuple[str, int]]:
    """What was acknowledged and is not in Kafka."""
    names = {each.name for each in publishers}
    keys = ((record.key.split(b"/")[0].decode(), record.value) for record in kafka.consume_all(topic))
    there = {(name, int(value)) for name, value in keys if name in names}
    return {(each.name, number) for each in publishers for number in each.acknowledged} - there
