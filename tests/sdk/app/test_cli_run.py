"""`ottla run module:app` as a process: it handles, it answers probes, and SIGTERM ends it without loss."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Json
from ottla.cli.services.run import load_app
from ottla.errors import ConfigError

SERVICE = """
import sys, time
from ottla import App, CommitPolicy, Json

app = App({group!r}, commit=CommitPolicy(every_s=60))
number = 3

@app.handler({topic!r}, value=Json())
def on_order(value: int) -> None:
    time.sleep(0.002)
    print("handled", value, flush=True)

@app.on_stop
def bye() -> None:
    print("stopped", flush=True)
"""


@pytest.fixture
def service(tmp_path: Path, kafka_topic: str, kafka_group: str) -> Path:
    (tmp_path / "billing_service.py").write_text(SERVICE.format(group=kafka_group, topic=kafka_topic))
    (tmp_path / "broken_service.py").write_text("import there_is_no_such_package\n")
    return tmp_path


@pytest.fixture
def run_cli(service: Path, kafka: Any) -> Iterator[Any]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", "from ottla.cli import main; main()", "run", *arguments],
            cwd=service,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "PYTHONPATH": ""},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.representative("15-asyncio")
@pytest.mark.parametrize("flags", [(), ("--asyncio",)], ids=["threads", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_commits_and_leaves(
    run_cli: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    committed: Any,
    flags: tuple[str, ...],
    number: signal.Signals,
) -> None:
    kafka.produce(kafka_topic, range(1_000), value=Json())
    process = run_cli("billing_service:app", *flags)
    for _ in range(20):
        assert process.stdout.readline().startswith("handled")
    process.send_signal(number)
    rest = process.stdout.read()  # `communicate` would leave out the lines that came together with the last one read
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    assert rest.rstrip().endswith("stopped")
    handled = 20 + rest.count("handled")
    assert handled < 1_000, "it stopped in the middle"
    assert committed(kafka_group, kafka_topic) == handled, "what was handled is committed, and nothing else"


@pytest.mark.representative("asyncio")
@pytest.mark.parametrize("flags", [(), ("--asyncio",)], ids=["threads", "asyncio"])
def test_probes_are_answered(run_cli: Any, kafka: Any, kafka_topic: str, flags: tuple[str, ...]) -> None:
    kafka.produce(kafka_topic, [1], value=Json())
    process = run_cli("billing_service:app", "--health-port", "0", *flags)
    found = None
    while found is None:
        line = process.stderr.readline()
        assert line, "it ended"
        found = re.search(r"(http://[\d.:]+)/health/ready", line)
    handled = process.stdout.readline()
    assert handled.startswith("handled"), process.stderr.read()
    answer = json.load(urllib.request.urlopen(found[1] + "/health", timeout=5))

    assert answer["ready"] is True
    assert answer["partitions"][0]["partition"] == f"{kafka_topic}-0"
    assert json.load(urllib.request.urlopen(found[1] + "/health/live", timeout=5))["alive"] is True
    with pytest.raises(urllib.error.HTTPError) as missing:
        urllib.request.urlopen(found[1] + "/nothing", timeout=5)
    assert missing.value.code == 404
    missing.value.close()
    process.send_signal(signal.SIGTERM)
    process.wait(20)


@pytest.mark.complete
def test_probes_listen_where_they_are_told(run_cli: Any, service: Path) -> None:
    process = run_cli("billing_service:app", "--health-port", "0", "--health-host", "0.0.0.0")
    lines = iter(process.stderr.readline, "")
    port = next(found[1] for line in lines if (found := re.search(r"http://0\.0\.0\.0:(\d+)/health/ready", line)))
    with socket.create_connection((socket.gethostbyname(socket.gethostname()), int(port)), timeout=5):
        pass  # not only on loopback
    refused = run_cli("billing_service:app", "--health-port", port, "--health-host", "0.0.0.0")
    _, said = refused.communicate(timeout=60)
    assert refused.returncode == 2
    assert f"--health-host 0.0.0.0 --health-port {port}: cannot listen there" in said
    helped = run_cli("--help").communicate(timeout=60)[0]
    assert "In Kubernetes 0.0.0.0" in " ".join(helped.split())


@pytest.mark.representative("threads")
@pytest.mark.parametrize("flags", [(), ("--asyncio",)], ids=["threads", "asyncio"])
def test_missing_topics_end_it_or_are_created_as_the_options_say(
    run_cli: Any, service: Path, kafka: Any, kafka_topic: str, flags: tuple[str, ...]
) -> None:
    path = service / "billing_service.py"
    missing = kafka.fresh_name("missing")
    path.write_text(path.read_text().replace(kafka_topic, missing))
    ended = run_cli("billing_service:app", "--topics-timeout", "0", *flags)
    _, said = ended.communicate(timeout=60)
    assert ended.returncode == 2
    assert f"ottla: UnknownTopic: the cluster at {kafka.bootstrap_servers} does not have {missing}." in said

    process = run_cli("billing_service:app", "--create-topics", *flags)
    for line in process.stderr:
        if "partitions_assigned" in line:
            assert f"{missing}-0" in line
            break
    else:
        raise AssertionError("it ended")
    process.send_signal(signal.SIGTERM)
    process.wait(20)


@pytest.mark.parametrize("flags", [(), ("--asyncio",)], ids=["threads", "asyncio"])
def test_an_address_where_nobody_listens_ends_it_with_one_line(run_cli: Any, flags: tuple[str, ...]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{probe.getsockname()[1]}"
    process = run_cli("billing_service:app", "--bootstrap-servers", nobody, "--start-timeout", "0", *flags)
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 2, errors
    assert f"no Kafka broker answered at {nobody} within 0 s" in errors
    assert "Traceback" not in errors
    assert output == "", "no hook of the service ran"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("billing_service", "expected MODULE:APP"),
        ("no_such_service:app", "no module 'no_such_service'"),
        ("billing_service:application", "no attribute 'application'; it has app"),
        ("billing_service:number", "'number' is a int"),
    ],
)
def test_a_target_that_is_not_there_is_named(
    service: Path, monkeypatch: pytest.MonkeyPatch, target: str, said: str
) -> None:
    monkeypatch.chdir(service)
    monkeypatch.setattr(sys, "path", [str(service), *sys.path])

    with pytest.raises(ConfigError, match=re.escape(said)):
        load_app(target)


def test_a_module_that_fails_to_import_something_else_keeps_its_own_error(
    service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(service)
    monkeypatch.setattr(sys, "path", [str(service), *sys.path])

    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_package"):
        load_app("broken_service:app")


@pytest.mark.representative("argument")
@pytest.mark.parametrize(
    "named",
    ["bootstrap_servers='127.0.0.1:1'", "settings={'bootstrap.servers': '127.0.0.1:1'}"],
    ids=["argument", "settings"],
)
def test_the_address_of_the_command_line_beats_that_of_the_code(
    service: Path, run_cli: Any, kafka: Any, kafka_topic: str, make_topic: Any, named: str
) -> None:
    results = make_topic("results")
    text = (service / "billing_service.py").read_text()
    text = text.replace("commit=", f"{named}, scheduler=True, dead_letter_topic={results!r}, commit=")
    text += "\nfrom ottla import Producer\nwith Producer() as own:\n"
    text += f"    own.send({results!r}, b'of the module').result()\n"
    (service / "billing_service.py").write_text(text)
    kafka.produce(kafka_topic, [1], value=Json())

    process = run_cli("billing_service:app", "--bootstrap-servers", kafka.bootstrap_servers)

    assert process.stdout.readline().startswith("handled"), process.stderr.read()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    chosen = [json.loads(line) for line in said.splitlines() if '"address_chosen"' in line]
    assert [(each["taken"], each["from"], each["passed_over"]) for each in chosen] == [
        (kafka.bootstrap_servers, "the command line", {"the code": "127.0.0.1:1"})
    ]
    assert [record.value for record in kafka.consume_all(results)] == [b"of the module"]
