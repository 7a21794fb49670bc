"""The Compose file of the embedded broker: its syntax, and its commands as processes. Containers do not run here."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from ottla.cli import main
from ottla.serdes import SchemaRegistry

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "local-development.md"
SCHEMA = '{"type": "string"}'


def services() -> dict[str, Any]:
    (text,) = re.findall(
        r'```yaml title="compose.embedded.yaml"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    found = yaml.safe_load(text)
    assert set(found) == {"services", "volumes"}
    return dict(found["services"])


def test_services_depend_on_each_other_and_use_the_names_that_are_advertised() -> None:
    found = services()
    for service in found.values():
        known = {
            "build",
            "command",
            "volumes",
            "ports",
            "healthcheck",
            "depends_on",
            "environment",
            "stop_grace_period",
        }
        assert set(service) <= known
        assert set(service.get("depends_on", {})) <= set(found)
        assert all(each.startswith("127.0.0.1:") for each in service.get("ports", ()))
    assert "--advertise kafka" in found["kafka"]["command"]
    for name in ("registry", "billing"):
        assert found[name]["environment"]["OTTLA_BOOTSTRAP_SERVERS"] == "kafka:9092"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(command: str, **env: str) -> Iterator[str]:
    """The line that a command prints when it is ready."""
    arguments = [sys.executable, "-m", *shlex.split(command)]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **env}
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line.startswith("ready "), command
        yield line.partition("=")[2]
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.complete
def test_its_commands_keep_records_and_schemas_over_a_restart(tmp_path: Path) -> None:
    found = services()
    ports = {"9092": str(free_port()), "8081": "0"}

    def here(text: str) -> str:
        """On this machine: its name, a folder of the test, free ports."""
        text = text.replace("--advertise kafka", "--advertise localhost").replace("kafka:", "localhost:")
        text = text.replace("/var/lib/ottla", str(tmp_path / "data"))
        for port, instead in ports.items():
            text = re.sub(rf"\b{port}\b", instead, text)
        return text

    environment = {name: here(value) for name, value in found["registry"]["environment"].items()}
    for is_first in (True, False):
        with ExitStack() as stack:
            servers = stack.enter_context(running(here(found["kafka"]["command"])))
            assert servers == f"localhost:{ports['9092']}"
            probe = [here(word) for word in found["kafka"]["healthcheck"]["test"][2:]]
            listed = CliRunner().invoke(main, probe).stdout.split()
            assert listed[-6:] == ["orders", "3", "1", "orders.dead-letters", "1", "1"]
            url = stack.enter_context(running(here(found["registry"]["command"]), **environment))
            registry = SchemaRegistry(url.replace("0.0.0.0", "127.0.0.1"))
            if is_first:
                assert registry.register("orders-value", SCHEMA) == 1
            assert registry.version("orders-value").text == SCHEMA
