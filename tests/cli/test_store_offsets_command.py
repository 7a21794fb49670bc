"""`ottla store-offsets`, against a broker and a database file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_output import document

from ottla import TopicPartition
from ottla.cli import main
from ottla.stores import Sqlite
from ottla.testing import Kafka


@pytest.fixture
def place(tmp_path: Path, kafka: Kafka, kafka_topic: str) -> str:
    """A group that has handled four of ten records."""
    path = str(tmp_path / "billing.db")
    store, name = Sqlite(path), TopicPartition(kafka_topic, 0)
    store.create_tables()
    session = store.session()
    epoch = session.claim_offsets("billing", "host/1", [name])[name].epoch
    session.pass_offset("billing", name, 4, epoch)
    session.close()
    kafka.produce(kafka_topic, range(10), value=int)
    return path


@pytest.fixture
def ottla(kafka: Kafka, place: str) -> Callable[..., Result]:
    def run(verb: str, *arguments: str) -> Result:
        environment = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "COLUMNS": "160", "OTTLA_STORE": place}
        return CliRunner().invoke(main, ["store-offsets", verb, *arguments], env=environment)

    return run


def rows(ottla: Callable[..., Result]) -> list[dict[str, object]]:
    shown = ottla("show", "billing", "--format", "json")
    assert shown.exit_code == 0, shown.output
    found: list[dict[str, object]] = document(shown, "ottla.offsets/1")["items"]
    return found


def test_rows_are_shown_with_their_lag(ottla, kafka_topic: str):
    (row,) = rows(ottla)
    assert (row["topic"], row["partition"], row["next"], row["lag"], row["epoch"]) == (kafka_topic, 0, 4, 6, 1)
    assert row["member"] == "host/1"
    assert "keeps no offsets" in ottla("show", "nobody").output


@pytest.mark.parametrize(("to", "wanted"), [("earliest", 0), ("latest", 10), ("7", 7), ("-1h", 0)])
def test_an_offset_is_set_and_its_owner_fenced(ottla, place: str, kafka_topic: str, to: str, wanted: int):
    dry = ottla("reset", "billing", "--topic", kafka_topic, "--to", to, "--dry-run", "--format", "json")
    (change,) = document(dry, "ottla.offsets.reset/1")["items"]
    assert change == {"topic": kafka_topic, "partition": 0, "old": 4, "new": wanted}
    assert rows(ottla)[0]["next"] == 4
    done = ottla("reset", "billing", "--topic", f"{kafka_topic}:0", "--to", to, "--yes")
    assert done.exit_code == 0, done.output
    (row,) = rows(ottla)
    assert (row["next"], row["epoch"]) == (wanted, 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["billing", "--to", "11"], "--to: found 11, wanted 0 to 10"),
        (["nobody", "--to", "3"], "keeps no offset of"),
        (["billing", "--to", "3", "--store", "/nowhere.db"], "wanted postgresql://host/database or a SQLite file"),
    ],
)
def test_what_cannot_be_set_says_why(ottla, kafka_topic: str, arguments: list[str], says: str):
    refused = ottla("reset", *arguments, "--topic", kafka_topic, "--yes")
    assert refused.exit_code == 2
    assert says in " ".join(refused.output.split())
