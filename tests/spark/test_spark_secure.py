"""A pipeline from Kafka to Kafka through TLS and SCRAM, by nothing but `kafka.*` options."""

from __future__ import annotations

import pytest

from ottla.testing import secure_kafka

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def secure():
    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512", client_auth="required") as running:
        yield running


def test_a_stream_is_read_and_written_with_a_password_and_a_certificate(topics, secure, tmp_path):
    given = {"kafka.bootstrap.servers": secure.bootstrap_servers} | {
        f"kafka.{name}": value for name, value in secure.settings.items()
    }
    assert given["kafka.security.protocol"] == "SASL_SSL"
    source, sink = secure.create_topic("orders"), secure.create_topic("shipped")
    secure.produce(source, [f"order {number}" for number in range(50)])
    query = topics.start(
        topics.stream(source, **given)
        .select("value")
        .writeStream.format("ottla")
        .options(**given, topic=sink, delivery="exactly-once", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert query.awaitTermination(240)
    assert query.exception() is None
    found = [bytes(row.value).decode() for row in topics.read(sink, **given).orderBy("offset").collect()]
    assert sorted(found) == sorted(f"order {number}" for number in range(50))


def test_a_wrong_password_fails_the_read_and_says_why(topics, secure):
    given = {"kafka.bootstrap.servers": secure.bootstrap_servers} | {
        f"kafka.{name}": value for name, value in secure.settings.items()
    }
    topic = secure.create_topic("private")
    with pytest.raises(Exception, match="refused 'alice': Authentication failed"):
        topics.read(topic, **given | {"kafka.sasl.password": "guess"}).collect()
