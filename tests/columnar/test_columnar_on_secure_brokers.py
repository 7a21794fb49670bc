"""The columnar clients on brokers that want TLS, a certificate or a password: reading, writing, transactions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from secure_ways import WAYS

from ottla.columnar import read, write
from ottla.testing import secure_kafka

ROWS = [f"value {number}".encode() * 20 for number in range(20_000)]


@pytest.fixture(scope="module", params=WAYS)
def secure(request):
    with secure_kafka(**WAYS[request.param], brokers=2) as running:
        yield running


@pytest.fixture
def topic(secure):
    return secure.create_topic(secure.fresh_name("topic"), partitions=2)


def rows_of(secure, topic):
    table = read(topic, bootstrap_servers=secure.bootstrap_servers, settings=secure.settings).read_all()
    return sorted(table["value"].to_pylist())


@pytest.mark.parametrize("transactional_id", [None, "nightly"])
@pytest.mark.representative("scram-256-nightly")
def test_a_table_is_written_and_read(secure, topic, transactional_id):
    write(
        topic,
        pa.table({"value": ROWS}),
        bootstrap_servers=secure.bootstrap_servers,
        settings=secure.settings,
        transactional_id=transactional_id,
    )
    assert rows_of(secure, topic) == sorted(ROWS)


def test_another_client_wrote_it(secure, topic):
    secure.produce(topic, ROWS[:100])
    assert rows_of(secure, topic) == sorted(ROWS[:100])
