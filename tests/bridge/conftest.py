"""Bridges of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bridge_kit import Start

from ottla.bridge import Bridge, BridgeSettings, Rule
from ottla.testing import Kafka


@pytest.fixture
def make_bridge(kafka: Kafka) -> Iterator[Callable[..., Bridge]]:
    with ExitStack() as stack:

        def make(rules: list[Rule], *, servers: str | None = None, **settings: Any) -> Bridge:
            settings.setdefault("listen", ["127.0.0.1:0"])
            made = BridgeSettings(rules=rules, **settings)
            return stack.enter_context(Bridge(servers or kafka.bootstrap_servers, made))

        yield make


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes = []

    def begin(servers: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "bridge", "mqtt", "-b", servers, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        processes.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if "bridge_listening" in line:
                break
        threading.Thread(target=process.stderr.read, daemon=True).start()
        assert process.poll() is None
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait(20)
        if process.stderr is not None:
            process.stderr.close()
