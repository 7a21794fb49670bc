"""The page on the bridge runs."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

from click.testing import CliRunner
from mqtt_client import StrictClient

from ottla.cli import main
from ottla.testing import Kafka

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "bridge.md").read_text(encoding="utf-8")


def block(language: str, title: str = "") -> str:
    found = re.search(rf"^```{language}[^\n]*{re.escape(title)}[^\n]*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_mapping_does_what_the_page_shows(tmp_path: Path):
    file = tmp_path / "bridge.toml"
    file.write_text(block("toml"))
    arguments = ["bridge", "mqtt", "--mapping", str(file), "--dry-run"]
    result = CliRunner().invoke(main, arguments, input="sensors/7/temp 21.5\n")
    assert json.loads(result.output) == json.loads(re.search(r"^\{.*temperature.*\}$", PAGE, re.MULTILINE)[0])


def test_the_mapping_of_sparkplug_sorts_by_the_levels_of_a_topic(tmp_path: Path):
    file = tmp_path / "sparkplug.toml"
    file.write_text(block("toml", "sparkplug.toml"))
    names = ("DDATA/edge/pump", "NDATA/edge", "DBIRTH/edge/pump", "NBIRTH/edge", "DDEATH/edge/pump")
    lines = b"".join(b"spBv1.0/plant/%b \x08\xff\n" % name.encode() for name in names) + b"spBv1.0/STATE/scada {}\n"
    result = CliRunner().invoke(main, ["bridge", "mqtt", "--mapping", str(file), "--dry-run"], input=lines)
    found = [(each["topic"], each["key"]) for each in map(json.loads, result.output.splitlines())]
    assert found == [
        ("sparkplug.data", "plant/edge/pump"),
        ("sparkplug.data", "plant/edge"),
        ("sparkplug.births", "plant/edge/pump"),
        ("sparkplug.events", "spBv1.0/plant/NBIRTH/edge"),
        ("sparkplug.events", "spBv1.0/plant/DDEATH/edge/pump"),
        ("sparkplug.events", "spBv1.0/STATE/scada"),
    ]


def test_the_page_of_options_is_that_of_the_commands():
    tool = runpy.run_path(str(ROOT / "tools" / "bridge_options.py"))
    assert tool["PAGE"].read_text(encoding="utf-8") == tool["render"](), "run: python tools/bridge_options.py"


def test_the_program_runs(kafka: Kafka, make_topic):
    topic, dead = make_topic(), make_topic()
    program = block("python").replace("localhost:9092", kafka.bootstrap_servers)
    program = program.replace('"temperature"', f'"{topic}"').replace("bridge.dead-letters", dead)
    program += '    with client(port) as c:\n        c.publish("sensors/7/temp", b"21.5")\n        c.ack()\n'
    exec(compile(program, "bridge.md", "exec"), {"client": StrictClient})
    (record,) = kafka.consume_all(topic)
    assert (record.key, record.value) == (b"7", b"21.5")


def test_every_option_that_the_page_names_exists():
    help_texts = "".join(CliRunner().invoke(main, ["bridge", name, "--help"]).output for name in ("mqtt", "amqp"))
    for option in set(re.findall(r"--[a-z][a-z-]+", PAGE)) - {"--bridge", "--partitions"}:
        assert option in help_texts, option
