"""A Kafka for each way to be secure, shared by the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from secure_ways import WAYS

from ottla.testing import SecureKafka, secure_kafka


@pytest.fixture(scope="module", params=WAYS)
def secure(request: pytest.FixtureRequest) -> Iterator[SecureKafka]:
    with secure_kafka(**WAYS[request.param]) as running:
        yield running


@pytest.fixture
def topic(secure: SecureKafka) -> str:
    return secure.create_topic(secure.fresh_name("topic"))
