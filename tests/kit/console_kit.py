"""A console of a cluster on a free port, in this process, and what it answers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import click

from ottla.cli.shared.cluster_options import cluster_opener
from ottla.cli.shared.output import warn
from ottla.config import Settings
from ottla.console.guard import Rules, hosts_of
from ottla.console.pages import console_app
from ottla.console.server import Server
from ottla.console.state import ConsoleOptions, ConsoleState

TOKEN = "a-token-of-the-tests"
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class Running:
    """A console that listens. Requests have its token unless they bring headers of their own."""

    port: int
    rules: Rules
    console: ConsoleState

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, *, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> Answered:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            given = {"Authorization": f"Bearer {TOKEN}"} if headers is None else headers
            connection.request(method, path, body=body, headers=given)
            response = connection.getresponse()
            return Answered(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, name: str, /, **params: Any) -> Any:
        """The JSON of a GET that succeeds."""
        answered = self.request("GET", f"/api/{name}?{urlencode(params, doseq=True)}")
        assert answered.status == 200, answered.content
        return answered.json

    def refused(self, name: str, /, **params: Any) -> tuple[int, str]:
        """Status and message of a GET that does not."""
        answered = self.request("GET", f"/api/{name}?{urlencode(params, doseq=True)}")
        assert answered.status >= 400, answered.content
        return answered.status, answered.json["error"]["message"]

    def post(self, name: str, /, **body: Any) -> Answered:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        return self.request("POST", f"/api/{name}", headers=headers, body=json.dumps(body).encode())


@contextmanager
def running_console(kafka: Settings, choices: ConsoleOptions, **rules: Any) -> Iterator[Running]:
    with click.Context(click.Command("console")):
        opener = cluster_opener(kafka)
    console = ConsoleState(kafka, choices, open_cluster=opener, timeout_s=30.0, warn=warn)
    made: list[Rules] = []

    def make(port: int) -> Any:
        known = {"hosts": hosts_of(["127.0.0.1", "localhost"], port), "token": TOKEN, "may_write": choices.may_write}
        made.append(Rules(**{**known, **rules}))
        return console_app(console, made[0])

    server = Server(make, host="127.0.0.1", port=0)
    server.start()
    try:
        yield Running(server.port, made[0], console)
    finally:
        server.close()
        console.close()


Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
Write = Callable[..., None]
