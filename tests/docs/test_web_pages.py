"""The pages on web frameworks do what they say, and producers of threads work under gunicorn and Celery as they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from follow_page import Follower, blocks_of, follow
from foreign_brokers import free_port

from ottla import Json
from ottla.testing import Kafka, wait_until

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
BIN = Path(sys.executable).parent
ORDER = {"id": 1, "customer": "ada"}
UNANSWERED = """
from shop import ORDERS, orders, web


@web.post("/many")
def send_many():
    for number in range(2_000):
        orders().send("TOPIC", {"id": number, "customer": "ada"}, key=str(number))
    return {}
"""
OVER_FILES = """
from tasks import tasks

tasks.conf.broker_url = "filesystem://"
tasks.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue"}
tasks.conf.worker_enable_remote_control = False
"""

for _name in ("celery", "flask", "gunicorn", "httpx2", "uvicorn"):
    pytest.importorskip(_name, reason=f"{_name} is not installed: pip install 'ottla[dev]'")

pytestmark = [pytest.mark.complete, pytest.mark.timeout(300)]


@pytest.mark.representative("fastapi.md-7")
@pytest.mark.parametrize(
    ("page", "blocks"), [("fastapi.md", 7), ("django.md", 11), ("litestar.md", 4), ("aiohttp.md", 7)]
)
def test_a_page_does_what_it_says(page: str, blocks: int, tmp_path: Path) -> None:
    pytest.importorskip(page.removesuffix(".md"), reason="its framework is not installed: pip install 'ottla[dev]'")
    assert follow(HOW_TO / page, tmp_path, BIN) == blocks


def test_the_page_on_flask_does_what_it_says(tmp_path: Path) -> None:
    assert follow(HOW_TO / "flask-celery.md", tmp_path, BIN) == 9


Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path, kafka: Kafka, kafka_topic: str) -> Iterator[Start]:
    """Starts a program in a folder with the modules of the page on Flask, whose topic is one of the test."""
    follower = Follower(tmp_path, BIN)
    for block in blocks_of(HOW_TO / "flask-celery.md"):
        if block.title in ("shop.py", "tasks.py"):
            follower.follow(block)
    for path in tmp_path.glob("*.py"):
        path.write_text(path.read_text().replace('"orders"', f'"{kafka_topic}"'))
    (tmp_path / "many.py").write_text(UNANSWERED.replace("TOPIC", kafka_topic))
    (tmp_path / "over_files.py").write_text(OVER_FILES)
    (tmp_path / "queue").mkdir()
    environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "PYTHONUNBUFFERED": "1"}
    started: list[subprocess.Popen[bytes]] = []

    def run(*command: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("w") as log:
            running = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                cwd=tmp_path,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(running)
        return running

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def post(port: int, path: str) -> int:
    """Return the status of the answer, or 0 while nothing listens."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(ORDER).encode())
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def values(kafka: Kafka, topic: str, *, at_least: int) -> list[object]:
    return [record.value for record in kafka.consume_all(topic, value=Json(), at_least=at_least)]


@pytest.mark.representative("threads")
@pytest.mark.parametrize(
    "options",
    [["--workers", "2"], ["--workers", "2", "--threads", "4"], ["--workers", "2", "--preload"]],
    ids=["processes", "threads", "preload"],
)
def test_what_a_worker_of_gunicorn_has_sent_is_in_the_topic_when_it_has_stopped(
    start: Start, kafka: Kafka, kafka_topic: str, tmp_path: Path, options: list[str]
) -> None:
    port = free_port()
    server = start("gunicorn", "many:web", "--bind", f"127.0.0.1:{port}", "--no-control-socket", *options)
    wait_until(lambda: post(port, "/orders") == 202, 60, what="an order that is taken")
    assert post(port, "/many") == 200
    server.send_signal(signal.SIGTERM)  # nothing has waited for the 2,000
    assert server.wait(60) == 0, (tmp_path / "log").read_text()
    found = values(kafka, kafka_topic, at_least=2_001)
    assert len(found) == 2_001
    assert ORDER in found


def test_a_worker_with_greenlets_refuses_with_the_reason(
    start: Start, kafka: Kafka, kafka_topic: str, tmp_path: Path
) -> None:
    pytest.importorskip("gevent", reason="pip install gevent")
    port = free_port()
    start(
        "gunicorn",
        "shop:web",
        "--bind",
        f"127.0.0.1:{port}",
        "--no-control-socket",
        "--worker-class",
        "gevent",
    )
    assert wait_until(lambda: post(port, "/orders"), 60, what="an answer") == 500
    log = (tmp_path / "log").read_text()
    assert "ConfigError: gevent has replaced threads by greenlets" in log
    assert "gunicorn --worker-class gthread" in log


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_task_of_celery_ends_when_its_record_is_acknowledged(
    start: Start, kafka: Kafka, kafka_topic: str, tmp_path: Path, pool: str
) -> None:
    start("celery", "--app", "over_files:tasks", "worker", "--pool", pool, "--concurrency", "2", "--loglevel", "info")
    called = start_task(tmp_path)
    assert called.returncode == 0, called.stderr
    log = tmp_path / "log"
    if pool == "gevent":
        wait_until(lambda: "ConfigError" in log.read_text(), 60, what="a refusal")
        assert "gevent has replaced threads by greenlets" in log.read_text()
        assert "celery --pool prefork" in log.read_text()
        return
    wait_until(lambda: log.read_text().count(" succeeded in ") == 4, 60, what="4 tasks")
    assert values(kafka, kafka_topic, at_least=4) == [ORDER] * 4


def start_task(folder: Path) -> subprocess.CompletedProcess[str]:
    program = f"import over_files\nfor _ in range(4): over_files.tasks.tasks['tasks.import_order'].delay({ORDER!r})"
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60)
