"""What tests of the bridge share."""

from __future__ import annotations

import base64
import hashlib

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
