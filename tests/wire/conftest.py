"""What the codec's tests share: every message in every version, and bodies for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ottla_wire.protocol import ApiKey, Message, codec, schemas
from ottla_wire.protocol.primitives import Buffer
from ottla_wire.protocol.schema import MessageSchema


@dataclass(frozen=True)
class MessageCase:
    """One message of one API in one version."""

    api_key: ApiKey
    version: int
    direction: str
    schema: MessageSchema
    encode: Callable[[Any], bytes]
    decode: Callable[[Buffer], Message]

    def __str__(self) -> str:
        return f"{self.api_key.name.lower()}-{self.version}-{self.direction}"


def _cases() -> dict[str, MessageCase]:
    cases = {}
    for api in schemas.all_apis():
        for version in api.versions:
            cases |= {str(case): case for case in _both_directions(api.api_key, version)}
    return cases


def _both_directions(key: ApiKey, version: int) -> list[MessageCase]:
    return [
        MessageCase(
            key,
            version,
            "request",
            schemas.request(key),
            lambda body: codec.encode_request(key, version, body),
            lambda data: codec.decode_request(key, version, data),
        ),
        MessageCase(
            key,
            version,
            "response",
            schemas.response(key),
            lambda body: codec.encode_response(key, version, body),
            lambda data: codec.decode_response(key, version, data),
        ),
    ]


@pytest.fixture(scope="session")
def message_cases() -> dict[str, MessageCase]:
    """By "fetch-12-request"."""
    return _cases()
