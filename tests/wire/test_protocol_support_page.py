"""The docs page about protocol support says what the broker's table says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from ottla_wire.protocol import schemas

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    return runpy.run_path(str(ROOT / "tools" / "protocol_support.py"))


def test_the_page_is_current(tool):
    assert tool["PAGE"].read_text() == tool["render"](), "run: python tools/protocol_support.py"


def test_every_served_version_has_a_message_table(tool):
    for api in tool["TABLE"].values():
        versions = schemas.request(api.key).versions
        assert api.min_version in versions, api.key
        assert api.max_version in versions, api.key


def test_every_known_api_is_on_the_page_once(tool):
    rows = [line.split("|")[2].strip() for line in tool["render"]().splitlines() if line.startswith("| ")]
    keys = [int(cell) for cell in rows if cell.isdigit()]
    assert sorted(keys) == sorted(schema.api_key for schema in schemas.all_apis())
