"""What a service made before it started is not looked at by its garbage collections."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.testing import Kafka

SERVICE = """
import asyncio, gc
from ottla import App

app = App({group!r}, bootstrap_servers={servers!r})

@app.handler({topic!r})
{prefix}def on_order(value: bytes) -> None:
    print("frozen", gc.get_freeze_count(), flush=True)
    app.stop()

{run}
"""
SHELLS = {
    "threads": ("", "app.run({arguments})"),
    "asyncio": ("async ", "asyncio.run(app.serve({arguments}))"),
}


@pytest.mark.representative("-True-threads")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("arguments", "is_frozen"), [("", True), ("handle_signals=False", False)])
def test_a_service_that_handles_its_signals_freezes_what_it_started_with(
    shell: str, arguments: str, is_frozen: bool, kafka: Kafka, kafka_topic: str
) -> None:

    kafka.produce(kafka_topic, [b"1"])
    prefix, run = SHELLS[shell]
    program = SERVICE.format(
        group=f"group-of-{kafka_topic}",
        servers=kafka.bootstrap_servers,
        topic=kafka_topic,
        prefix=prefix,
        run=run.format(arguments=arguments),
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    words = ended.stdout.split()
    assert words[0] == "frozen"
    assert (int(words[1]) > 10_000) == is_frozen
