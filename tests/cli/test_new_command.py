"""`ottla new`: what it writes is the example, works as it is, and is written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from foreign_brokers import free_port
from help_examples import examples_of_nouns

from ottla.cli import main
from ottla.cli.services.new import FILES
from ottla.testing import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "tested_service"
BIN = Path(sys.executable).parent


def files_of(folder: Path) -> list[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    made_by_tools = {"__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".hypothesis"}
    return sorted(str(path) for path in found if not made_by_tools & set(path.parts))


@pytest.fixture
def service(tmp_path: Path) -> Path:
    written = CliRunner().invoke(main, ["new", str(tmp_path / "web-orders")])
    assert written.exit_code == 0, written.output
    return tmp_path / "web-orders"


def test_every_file_of_the_example_is_written_under_the_services_own_name(service: Path) -> None:
    assert files_of(EXAMPLE) == sorted(FILES)
    assert files_of(service) == sorted(path.replace("shop/", "web_orders/") for path in FILES)
    for path in files_of(service):
        text = (service / path).read_text(encoding="utf-8")
        assert "shop" not in text, path
        assert text == (EXAMPLE / path.replace("web_orders/", "shop/")).read_text("utf-8").replace("shop", "web_orders")


def test_it_names_what_it_wrote_and_the_next_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = CliRunner().invoke(main, ["new", "my service", "--name", "billing"])
    lines = written.stdout.splitlines()
    assert lines[0] == "written to my service:"
    assert sorted(line.strip() for line in lines[1:-1]) == files_of(tmp_path / "my service")
    assert lines[-1] == "next: cd 'my service' && pip install -e '.[test]' && pytest"
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert CliRunner().invoke(main, ["new", "."]).stdout.splitlines()[-1] == "next: pip install -e '.[test]' && pytest"


@pytest.mark.slow
def test_its_tests_pass_as_they_are(service: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=service, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^10 passed", ran.stdout, re.MULTILINE), ran.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["2fast"], "found '2fast' as the package's name, wanted lower-case letters"),
        (["class"], "no keyword of Python; choose another by --name"),
        (["a" * 51], "at most 50"),
        (["there", "--name", "../up"], "found '../up'"),
        (["there", "--name", "Orders"], "found 'Orders'"),
        (["json"], "'json' would hide a module of that name; choose another by --name"),
        (["ottla"], "'ottla' would hide"),
        (["there", "--name", "pytest"], "'pytest' would hide a module of that name\n"),
        (["tests"], "'tests' would hide"),
    ],
)
def test_a_name_that_python_cannot_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(main, ["new", *arguments])
    assert refused.exit_code == 2
    assert says in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "README.md").write_text("mine")
    for target, found in (("full", "files"), ("full/README.md", "a file")):
        refused = CliRunner().invoke(main, ["new", str(tmp_path / target), "--name", "billing"])
        assert (refused.exit_code, f"found {found}, wanted a new or an empty folder" in refused.stderr) == (2, True)
    assert files_of(tmp_path) == ["full/README.md"]
    assert (tmp_path / "full" / "README.md").read_text() == "mine"


@pytest.mark.slow
def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for target, left in (("empty", ["empty"]), ("a/b", ["empty"])):
        ended = subprocess.run(
            [sys.executable, "-m", "ottla", "new", target, "--name", "billing"],
            cwd=tmp_path,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700)),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, "File too large" in ended.stderr) == (2, True), ended.stderr
        assert f"{target}/" in ended.stderr, "the file is named"
        assert "Traceback" not in ended.stderr
        assert [path.name for path in tmp_path.iterdir()] == left
        assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.complete
def test_the_examples_of_its_help_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for _, line in examples_of_nouns("new")]
    assert len(lines) == 2
    for line in lines:
        assert CliRunner().invoke(main, line.split()[1:]).exit_code == 0, line


def test_the_image_is_made_of_files_that_are_there_and_sent_to_the_engine(service: Path) -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (service / "Dockerfile").read_text(), re.MULTILINE)
    sources = [name.rstrip("/") for line in copied for name in line.split()]
    assert sources == ["pyproject.toml", "README.md", "web_orders"]
    kept = re.findall(r"^!(.+)$", (service / ".dockerignore").read_text(), re.MULTILINE)
    assert kept == sources
    assert all((service / name).exists() for name in sources)


@pytest.mark.complete
def test_it_builds_a_wheel_of_its_package_alone(service: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    subprocess.run(command, cwd=service, capture_output=True, timeout=60, check=True)
    (wheel,) = (service / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        modules = sorted(name for name in archive.namelist() if ".dist-info" not in name)
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        assert "Requires-Dist: ottla[avro]" in archive.read(metadata).decode()
    assert modules == [path for path in files_of(service) if path.startswith("web_orders/")]


@pytest.mark.complete
def test_its_workflow_fits_the_schema_and_installs_what_the_project_has(service: Path) -> None:
    path = service / ".github" / "workflows" / "test.yml"
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = yaml.safe_load(path.read_text())["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == ["pip install -e '.[test]'", "pytest"]


class Containers:
    """Runs what containers would, as processes beside the service, on free ports."""

    def __init__(self, service: Path) -> None:
        self.folder = service.parent
        self.ports = {"9092": str(free_port()), "8080": str(free_port())}
        self.environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(service), "PYTHONUNBUFFERED": "1"}
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, command: list[str], log: str, **environment: str) -> subprocess.Popen[bytes]:
        env = self.environment | {name: self._here(value) for name, value in environment.items()}
        with (self.folder / log).open("w") as file:
            running = subprocess.Popen(
                [self._here(part) for part in command], env=env, cwd=self.folder, stdout=file, stderr=file
            )
        self.started.append(running)
        return running

    def _here(self, part: str) -> str:
        return re.sub(r"\b(9092|8080)\b", lambda port: self.ports[port[0]], part).replace("0.0.0.0", "127.0.0.1")

    def log(self, name: str) -> str:
        return (self.folder / name).read_text("utf-8")


@pytest.fixture
def containers(service: Path) -> Iterator[Containers]:
    running = Containers(service)
    yield running
    for process in running.started:
        process.kill()
        process.wait()


@pytest.mark.complete
def test_the_services_of_the_compose_file_work_together(service: Path, containers: Containers) -> None:
    compose = yaml.safe_load((service / "compose.yaml").read_text())["services"]
    assert compose["service"]["network_mode"] == "service:broker", "the broker listens on loopback"
    environment = compose["service"]["environment"]
    containers.start(compose["broker"]["entrypoint"], "broker")
    kind, *probe = compose["broker"]["healthcheck"]["test"]
    assert kind == "CMD"
    # The probe has the broker's default address, which is another one here.
    wait_until(
        lambda: containers.start(probe, "probe", **environment).wait(60) == 0, 60, what="a broker that is healthy"
    )
    assert containers.log("probe").split() == ["orders", "3", "1", "orders.dead-letters", "1", "1"]

    entrypoint = json.loads((service / "Dockerfile").read_text().split("ENTRYPOINT ")[1])
    running = containers.start(entrypoint, "service", **environment)
    ready = f"http://127.0.0.1:{containers.ports['8080']}/health/ready"
    wait_until(lambda: answers(ready), 60, what="a service that is ready")
    sent = containers.start([sys.executable, "-m", "web_orders.send", "ada", "tea"], "sent", **environment)
    assert sent.wait(60) == 0, containers.log("sent")
    wait_until(lambda: "ada pays 5.00" in containers.log("service"), 60, what="an order that is booked")
    running.send_signal(signal.SIGTERM)
    assert running.wait(30) == 0, containers.log("service")


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
