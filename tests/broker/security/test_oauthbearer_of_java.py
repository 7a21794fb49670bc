"""Kafka's Java client logs in to the embedded broker with tokens: its unsecured ones, and those of an endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_kafka import Unavailable, run_tool, tools

from ottla.config.java_names import to_java
from ottla.testing import SecureKafka, secure_kafka

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")

pytestmark = [pytest.mark.complete, pytest.mark.real_kafka]


@pytest.fixture(params=[("SASL_PLAINTEXT", "unsecured"), ("SASL_PLAINTEXT", "signed"), ("SASL_SSL", "signed")])
def kafka(request: pytest.FixtureRequest) -> Iterator[SecureKafka]:
    try:
        tools()
    except Unavailable as reason:
        pytest.skip(str(reason))
    protocol, tokens = request.param
    with secure_kafka(protocol, mechanism="OAUTHBEARER", tokens=tokens) as running:
        yield running


def test_javas_client_logs_in(kafka: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.create_topic("orders")
    if kafka.endpoint is not None:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={kafka.endpoint.token_url}"
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    file = tmp_path / "client.properties"
    java = to_java(kafka.settings)
    file.write_text("".join(f"{name}={value}\n" for name, value in java.items()))
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--command-config", str(file), "--list"]
    assert "orders" in run_tool("org.apache.kafka.tools.TopicCommand", *arguments).split()
    if kafka.endpoint is not None:
        assert kafka.endpoint.issued > 1  # ours, and Java's own
