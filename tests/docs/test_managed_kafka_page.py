"""The settings blocks of the page about managed Kafkas: what every client makes of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.config import admin_settings, consumer_settings, producer_settings
from ottla.config.properties import parse_properties
from ottla.tokens.shared import forget_sources
from ottla.wire_client.client_settings import connection_settings

PAGE = Path(__file__).parents[2] / "docs/how-to/managed-kafka.md"
BLOCKS = [match[1] for match in re.finditer(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL)]


def test_each_service_has_a_block() -> None:
    assert len(BLOCKS) == 11


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_is_understood_by_every_client(block: str, tmp_path: Path) -> None:
    given = parse_properties(block.encode(), source="page")
    files = {name: str(tmp_path / "x.pem") for name in given if name.startswith("ssl.") and name.endswith(".location")}
    for client in (producer_settings, consumer_settings, admin_settings):
        settings = client(settings=given, environ={})
        config = settings.to_confluent()
        assert ("oauth_cb" in config) == (given.get("sasl.mechanism") == "OAUTHBEARER")
        assert not [name for name in config if name.startswith("sasl.oauthbearer.")]
        assert "SECRET" not in repr(settings)
    wire = connection_settings(given)
    assert (wire.tokens is not None) == (given.get("sasl.mechanism") == "OAUTHBEARER")
    assert "SECRET" not in repr(wire)
    if not files:
        assert "bootstrap_servers" in producer_settings(settings=given | PLAIN, environ={}).to_aiokafka()
    forget_sources()


PLAIN = {"compression.type": "none"}
