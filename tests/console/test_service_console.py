"""The page of a service's own health: `ottla run --console-port`, in both shells, in a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from console_kit import Write

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec

TOKEN = "the-token-of-a-service"
SERVICE = """
import os
import time
from ottla import App, RetryPolicy
app = App(os.environ["GROUP"], dead_letter_topic="served.dead-letters")

@app.handler(os.environ["TOPIC"], retry=RetryPolicy(initial_s=600, max_s=600, jitter=0))
def on_record(record) -> None:
    if record.value == b"poison":
        time.sleep(600)
    if record.value == b"later":
        raise ConnectionError("not now")
"""


@pytest.fixture
def served(admin: Admin) -> str:
    """A topic of its own for each test: what one writes, no other service handles."""
    topic = f"served-{uuid.uuid4().hex[:8]}"
    wanted = {topic: TopicSpec(partitions=2)}
    if not any(each.name == "served.dead-letters" for each in admin.list_topics()):
        wanted["served.dead-letters"] = TopicSpec(partitions=1)
    admin.create_topics(wanted)
    return topic


@contextmanager
def running(
    cluster: EmbeddedCluster, topic: str, folder: Path, *options: str
) -> Iterator[Callable[..., tuple[int, Any]]]:
    """`ask("GET", "service")` of a service that runs: status and JSON."""
    (folder / "the_service.py").write_text(SERVICE)
    # A group of its own too: a member that was killed keeps its partitions until its session ends.
    environment = {
        **os.environ,
        "GROUP": f"group-{topic}",
        "TOPIC": topic,
        "OTTLA_CONSOLE_TOKEN": TOKEN,
        "PYTHONPATH": str(folder),
    }
    command = [sys.executable, "-m", "ottla", "run", "the_service:app", "--console-port", "0", *options]
    process = subprocess.Popen(
        [*command, "--bootstrap-servers", cluster.bootstrap_servers],
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )
    try:
        assert process.stderr is not None
        port = 0
        for line in process.stderr:
            found = re.search(r"console at http://127\.0\.0\.1:(\d+)/#token=" + TOKEN, line)
            if found:
                port = int(found[1])
                break
        assert port, "the address is printed"

        def ask(method: str, name: str, body: Any = None, **headers: str) -> tuple[int, Any]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                known = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
                content = None if body is None else json.dumps(body)
                connection.request(method, f"/api/{name}", body=content, headers=headers or known)
                response = connection.getresponse()
                return response.status, json.loads(response.read())
            finally:
                connection.close()

        yield ask
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def wait_for(ask: Callable[..., tuple[int, Any]], holds: Callable[[Any], Any]) -> Any:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        status, found = ask("GET", "service")
        assert status == 200, found
        if holds(found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"never: {found}")


@pytest.mark.parametrize("shell", [[], ["--asyncio"]], ids=["threads", "asyncio"])
def test_a_service_shows_its_health_and_is_paused_and_resumed(
    cluster: EmbeddedCluster, served: str, tmp_path: Path, shell: list[str]
) -> None:
    with running(cluster, served, tmp_path, "--console-write", *shell) as ask:
        found = wait_for(ask, lambda state: len(state["partitions"]) == 2 and state["ready"])
        assert {each["topic"] for each in found["partitions"]} == {served}
        assert ask("POST", "service/pause", {"topic": served, "partition": 1})[0] == 200
        paused = wait_for(ask, lambda state: any(each["paused_for"] for each in state["partitions"]))
        assert [each["partition"] for each in paused["partitions"] if each["paused_for"]] == [1]
        assert ask("POST", "service/resume", {})[0] == 200
        wait_for(ask, lambda state: not any(each["paused_for"] for each in state["partitions"]))
        for wrong in ({"topic": served}, {"topic": "nothing", "partition": 0}, {"topic": served, "partition": -1}):
            status, answer = ask("POST", "service/pause", wrong)
            assert (status, bool(answer["error"]["message"])) == (400, True), wrong


def test_a_record_that_hangs_is_seen(cluster: EmbeddedCluster, served: str, tmp_path: Path, write: Write) -> None:
    with running(cluster, served, tmp_path) as ask:
        wait_for(ask, lambda state: len(state["partitions"]) == 2)
        write(served, [(b"k", b"poison", ())], partition=0)
        found = wait_for(
            ask, lambda state: any(each["oldest_unfinished_offset"] is not None for each in state["partitions"])
        )
        (stuck,) = [each for each in found["partitions"] if each["oldest_unfinished_offset"] is not None]
        assert stuck["partition"] == 0
        assert ask("POST", "service/pause", {})[0] == 403, "without --console-write it only shows"
        assert ask("GET", "service", None, Host="evil.example")[0] == 400
        assert ask("GET", "service", None, Authorization="Bearer wrong")[0] == 401


@pytest.mark.parametrize("shell", [[], ["--asyncio"]], ids=["threads", "asyncio"])
def test_a_retry_that_waits_is_shown_with_its_time(
    cluster: EmbeddedCluster, served: str, tmp_path: Path, write: Write, shell: list[str]
) -> None:
    with running(cluster, served, tmp_path, *shell) as ask:
        wait_for(ask, lambda state: len(state["partitions"]) == 2)
        write(served, [(b"k", b"later", ())], partition=1)
        found = wait_for(ask, lambda state: state["retries"])
        (retry,) = found["retries"]
        assert (retry["topic"], retry["partition"], retry["records"], retry["attempts"]) == (served, 1, 1, 1)
        assert 0 < retry["due_in_ms"] <= 600_000
        assert retry["due"].endswith("Z")
        assert found["retries_waiting"] == 1
        assert [each["retries_waiting"] for each in found["partitions"]] == [0, 1]
