"""A pipeline from Kafka to Kafka through TLS, with SCRAM or with tokens, by nothing but `kafka.*` options."""

from __future__ import annotations

import pytest

from ottla.config.java_names import to_java
from ottla.testing import secure_kafka

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def secure():
    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512", client_auth="required") as running:
        yield running


@pytest.fixture(scope="module")
def with_tokens():
    pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")
    with secure_kafka("SASL_SSL", mechanism="OAUTHBEARER") as running:
        del running.settings["https.ca.location"]  # Java has no such setting; `ssl.ca.location` is trusted there too
        yield running


def options_of(secure, settings):
    return {"kafka.bootstrap.servers": secure.bootstrap_servers} | {f"kafka.{n}": v for n, v in settings.items()}


def test_a_stream_is_read_and_written_with_a_password_and_a_certificate(topics, secure, tmp_path):
    """The sink has them by the names of the Java client, as they are written for Spark's own connector."""
    assert "kafka.sasl.jaas.config" in options_of(secure, to_java(secure.settings))
    assert stream_through(topics, secure, tmp_path) == sorted(f"order {number}" for number in range(50))


def test_a_stream_is_read_and_written_with_tokens(topics, with_tokens, tmp_path):
    """Source and sink fetch their own in whatever process Spark runs them, by either client's names."""
    given = options_of(with_tokens, to_java(with_tokens.settings))
    assert given["kafka.sasl.mechanism"] == "OAUTHBEARER"
    issued = with_tokens.endpoint.issued
    assert stream_through(topics, with_tokens, tmp_path) == sorted(f"order {number}" for number in range(50))
    assert with_tokens.endpoint.issued > issued


def stream_through(topics, secure, folder):
    """The values that a pipeline wrote, sorted."""
    given, to_sink = options_of(secure, secure.settings), options_of(secure, to_java(secure.settings))
    source, sink = secure.create_topic("orders"), secure.create_topic("shipped")
    secure.produce(source, [f"order {number}" for number in range(50)])
    query = topics.start(
        topics.stream(source, **given)
        .select("value")
        .writeStream.format("ottla")
        .options(**to_sink, topic=sink, delivery="exactly-once", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert query.awaitTermination(240)
    assert query.exception() is None
    return sorted(bytes(row.value).decode() for row in topics.read(sink, **given).orderBy("offset").collect())


def test_a_wrong_password_fails_the_read_and_says_why(topics, secure):
    given = options_of(secure, secure.settings)
    topic = secure.create_topic("private")
    with pytest.raises(Exception, match="refused 'alice': Authentication failed"):
        topics.read(topic, **given | {"kafka.sasl.password": "guess"}).collect()
