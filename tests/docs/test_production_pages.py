"""Production, security and compatibility: the manifest runs as a process, and what the pages list is what there is."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla import App, Str
from ottla.admin import Admin
from ottla.cli import main
from ottla.testing import SecureKafka, secure_kafka, wait_until

yaml = pytest.importorskip("yaml", reason="pip install 'ottla[docs]'")
pytest.importorskip("trustme", reason="pip install 'ottla[tls]'")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SERVICE = """
from ottla import App, Str

app = App("billing", dead_letter_topic="orders.dead-letters")

@app.handler("orders", value=Str())
def on_order(order: str) -> None:
    print(f"billed {order}", flush=True)
"""


def block(page: str, title: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    return str(found)


MANIFEST = yaml.safe_load(block("how-to/production.md", "billing.yaml"))
POD = MANIFEST["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENTRYPOINT = json.loads(block("how-to/production.md", "Dockerfile").split("ENTRYPOINT ")[1])


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    users = {"billing": "a-secret-of-billing"}
    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512", users=users) as running:
        running.create_topic("orders")
        running.create_topic("orders.dead-letters")
        yield running


class Pod:
    """The manifest's container as a process on this machine."""

    def __init__(self, folder: Path, kafka: SecureKafka) -> None:
        (folder / "billing").mkdir(exist_ok=True)
        (folder / "billing" / "service.py").write_text(SERVICE)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
        environment |= self._environment(kafka)
        here = {"0.0.0.0": "127.0.0.1", "8080": str(self.port)}
        command = [here.get(part, part) for part in [*ENTRYPOINT, *CONTAINER["args"]]]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)

    def _environment(self, kafka: SecureKafka) -> dict[str, str]:
        replaced = {
            "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "OTTLA_CLIENT_SSL_CA_LOCATION": kafka.settings["ssl.ca.location"],
            "OTTLA_CLIENT_SASL_PASSWORD": kafka.settings["sasl.password"],
            "POD_NAME": "billing-0",
        }
        found = {each["name"]: replaced.get(each["name"], each.get("value")) for each in CONTAINER["env"]}
        assert set(replaced) <= set(found), "the page no longer sets what this test replaces"
        return {name: value.replace("$(POD_NAME)", "billing-0") for name, value in found.items()}

    def answers(self, probe: str) -> bool:
        """What the kubelet would find."""
        get = CONTAINER[probe]["httpGet"]
        (port,) = (each["containerPort"] for each in CONTAINER["ports"] if each["name"] == get["port"])
        assert str(port) in ENTRYPOINT, "the probe asks at the port that the service listens on"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{get['path']}", timeout=5) as response:
                return 200 <= response.status < 400
        except (urllib.error.URLError, ConnectionError):
            return False

    def wait_until_ready(self) -> None:
        startup = CONTAINER["startupProbe"]
        limit_s = startup["periodSeconds"] * startup["failureThreshold"]
        wait_until(lambda: self.answers("startupProbe"), limit_s, what="the startup probe")
        wait_until(lambda: self.answers("livenessProbe") and self.answers("readinessProbe"), 60, what="readiness")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(POD["terminationGracePeriodSeconds"])


@pytest.fixture
def pod(tmp_path: Path, kafka: SecureKafka) -> Iterator[Pod]:
    running = Pod(tmp_path, kafka)
    yield running
    running.process.kill()
    running.process.wait()


def test_the_manifest_starts_passes_its_probes_handles_and_stops_in_time(pod: Pod, kafka: SecureKafka) -> None:
    pod.wait_until_ready()
    kafka.produce("orders", ["tea"], value=Str())
    wait_until(lambda: "billed tea" in pod.log.read_text(), 60, what="an order that is billed")
    with Admin(kafka.bootstrap_servers, settings=kafka.settings) as admin:
        (group,) = admin.describe_groups("billing")
    assert [member.instance_id for member in group.members] == ["billing-0"]
    assert pod.stop() == 0, pod.log.read_text()
    log = pod.log.read_text()
    assert '"event": "app_stopped"' in log
    assert kafka.settings["sasl.password"] not in log
    assert "tea" not in log.replace("billed tea", ""), "values of records are not logged"


def test_there_is_time_to_drain() -> None:
    assert inspect.signature(App).parameters["drain_s"].default < POD["terminationGracePeriodSeconds"]


def test_the_commands_on_security_are_accepted(kafka: SecureKafka, tmp_path: Path) -> None:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    users = {"admin": "admin-secret"}
    page = (DOCS / "how-to" / "security.md").read_text(encoding="utf-8")
    commands = re.findall(r"^ottla (acls .*)$", page, re.MULTILINE)
    assert len(commands) == 2
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=users, config=config) as guarded:
        reach = [
            "-b",
            guarded.bootstrap_servers,
            *(f"--set={name}={value}" for name, value in guarded.settings.items()),
        ]
        for command in commands:
            done = CliRunner().invoke(main, [*shlex.split(command), *reach, "--yes"])  # nobody is there to ask
            assert done.exit_code == 0, done.output
        listed = CliRunner().invoke(main, ["acls", "list", *reach]).output
    assert "User:billing" in listed


def test_the_code_on_security_is_true(kafka: SecureKafka) -> None:
    exec(compile(block("how-to/security.md", "masked"), "security.md", "exec", dont_inherit=True), {})
    program = block("how-to/security.md", "client").replace("kafka:9093", kafka.bootstrap_servers)
    program = program.replace("/etc/kafka/ca.pem", kafka.settings["ssl.ca.location"])
    names: dict[str, Any] = {"__name__": "security_page"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTTLA_CLIENT_SASL_PASSWORD", kafka.settings["sasl.password"])
        exec(compile(program, "security.md", "exec", dont_inherit=True), names)
        with names["producer"] as producer:
            assert producer.send("orders", b"coffee").result(30).topic == "orders"


class TestCompatibility:
    PAGE = (DOCS / "reference" / "compatibility.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize("package", ["confluent-kafka", "aiokafka", "pyspark", "pyarrow", "opentelemetry-sdk"])
    def test_the_oldest_versions_are_those_of_the_package(self, package: str) -> None:
        wanted = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
        (oldest,) = {each.split(">=")[1] for each in wanted if re.match(rf"{package}(\[\w+\])?>=", each)}
        assert re.search(rf"^\| {package} \| {re.escape(oldest)} and newer", self.PAGE, re.MULTILINE | re.IGNORECASE)

    def test_the_pythons_are_those_of_the_package(self) -> None:
        assert f"| Python | {PROJECT['requires-python'].removeprefix('>=')} and newer |" in self.PAGE
        for classifier in PROJECT["classifiers"]:
            if re.search(r"Python :: 3\.\d+$", classifier):
                assert classifier.rsplit(" ", 1)[1] in self.PAGE.split("| operating system")[0]

    def test_each_row_names_what_tests_it(self) -> None:
        makefile = (DOCS.parent / "Makefile").read_text(encoding="utf-8")
        known = {f"make {target}" for target in re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)}
        run = (DOCS.parent / "tools" / "run").read_text(encoding="utf-8")
        known |= {f"tools/run {name}" for name in re.findall(r"^([a-z-]+)\)", run, re.MULTILINE)}
        table = self.PAGE.partition("**Not tested**")[0]
        rows = re.findall(r"^\| .+ \| .+ \| .+ \| (.+) \|$", table, re.MULTILINE)
        assert len(rows) > 6
        for by in rows[1:]:
            named = set(re.findall(r"`((?:make|tools/run) [a-z-]+)", by))
            assert named, by
            assert named <= known

    def test_the_public_modules_are_those_of_the_reference(self) -> None:
        from docs_site.public_api import PUBLIC_MODULES

        for module in PUBLIC_MODULES:
            assert f"`{module}`" in self.PAGE
            assert import_module(module).__all__
