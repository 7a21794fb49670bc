"""`ottla run --console-port` in a process of its own, and what its page answers."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVICE_TOKEN = "the-token-of-a-service"
SERVICE = """
import os
import time
from ottla import App, DeadLetterBudget, RetryPolicy
app = App(os.environ["GROUP"], dead_letter_topic="served.dead-letters")
later = RetryPolicy(initial_s=600, max_s=600, jitter=0)

@app.handler(os.environ["TOPIC"], retry=later, budget=DeadLetterBudget(burst=7))
def on_record(record) -> None:
    if record.value == b"poison":
        time.sleep(600)
    if record.value == b"later":
        raise ConnectionError("not now")
"""
QUEUE_SERVICE = """
import os
import time
from ottla import App
app = App(os.environ["GROUP"] + ".queue", dead_letter_topic="served.dead-letters")

@app.queue(os.environ["TOPIC"], concurrency=4)
def on_job(value: bytes) -> None:
    if value == b"slow":
        time.sleep(600)
"""


@dataclass
class Service:
    """A service whose page is served."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, name: str, **headers: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and text of a page of HTML."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", f"/api/{name}", headers=headers or {"Authorization": f"Bearer {SERVICE_TOKEN}"})
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read().decode()
        finally:
            connection.close()

    def ask(self, method: str, name: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of `ask("GET", "service")`. It has the token unless it brings headers of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            known = {"Authorization": f"Bearer {SERVICE_TOKEN}", "Content-Type": "application/json"}
            content = None if body is None else json.dumps(body)
            connection.request(method, f"/api/{name}", body=content, headers=headers or known)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


@contextmanager
def running_service(servers: str, topic: str, folder: Path, *options: str, source: str = SERVICE) -> Iterator[Service]:
    """The service reads `topic` until this ends; then it is killed."""
    (folder / "the_service.py").write_text(source)
    # A group of its own too: a member that was killed keeps its partitions until its session ends.
    environment = {
        **os.environ,
        "GROUP": f"group-{topic}",
        "TOPIC": topic,
        "OTTLA_CONSOLE_TOKEN": SERVICE_TOKEN,
        "PYTHONPATH": str(folder),
    }
    command = [sys.executable, "-m", "ottla", "run", "the_service:app", "--console-port", "0", *options]
    process = subprocess.Popen(
        [*command, "--bootstrap-servers", servers],
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )
    try:
        assert process.stderr is not None
        port = 0
        for line in process.stderr:
            found = re.search(r"console at http://127\.0\.0\.1:(\d+)/#token=" + SERVICE_TOKEN, line)
            if found:
                port = int(found[1])
                break
        assert port, "the address is printed"
        yield Service(port)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
