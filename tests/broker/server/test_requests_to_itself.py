"""Requests that a node makes to itself, without a connection."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.promises import Promise
from broker_embedded.controller.controller import Controller
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message


def fails_at_once(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "no space left")


def fails_later(*_: Any, **__: Any) -> Any:
    answer: Promise[Any] = Promise()
    asyncio.get_running_loop().call_soon(answer.set_exception, OSError(errno.ENOSPC, "no space left"))
    return answer


@pytest.mark.parametrize("handler", [fails_at_once, fails_later])
def test_a_handler_that_fails_is_answered_and_logged(
    handler: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedCluster() as embedded:
        monkeypatch.setattr(Controller, "create_topics", handler)
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
        body = {"topics": [topic], "timeout_ms": 5_000, "validate_only": False}

        async def ask() -> Message:
            return await embedded._cluster.nodes[1].peers.send(1, ApiKey.CREATE_TOPICS, 7, body, timeout_ms=20_000)

        response = asyncio.run_coroutine_threadsafe(ask(), embedded._loop).result()
    assert [each.error_code for each in response.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    (line,) = [each for each in caplog.records if each.exc_info]
    assert line.getMessage() == "CREATE_TOPICS v7 from 127.0.0.1 failed"
    assert "no space left" in str(line.exc_info[1])  # type: ignore[index]
