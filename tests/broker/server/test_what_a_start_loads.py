"""A process shall be ready soon: what no request has asked for yet is not loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from broker_embedded.server import apis
from broker_embedded.server.requests.registry import TABLE, Api
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.primitives import random_uuid

AS_A_PROCESS_LOADS = """
import sys
from broker_embedded import __main__
__main__._load_asyncio_without_ssl()
import broker_embedded.process
print(*sys.modules)
import ssl
assert ssl.create_default_context() is not None
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    done = subprocess.run([sys.executable, "-c", AS_A_PROCESS_LOADS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_a_start_loads_no_handler_and_no_state_machine_of_a_coordinator(loaded: set[str]) -> None:
    assert "broker_embedded.server.broker" in loaded
    assert not {name for name in loaded if name.startswith("broker_embedded.server.apis.")}
    assert not loaded & {
        "broker_embedded.coordinator.group.shard",
        "broker_embedded.coordinator.transaction.shard",
        "broker_embedded.cluster.control",
        "broker_embedded.cluster.faults.injection",
    }


def test_a_start_loads_nothing_large_of_the_standard_library_that_it_does_not_use(loaded: set[str]) -> None:
    assert not loaded & {"ssl", "uuid", "difflib", "hashlib", "http", "email", "numpy", "unittest"}


def test_a_start_loads_nothing_of_security_unless_it_is_asked_for(loaded: set[str]) -> None:
    assert not {name for name in loaded if name.startswith("broker_embedded.security")}
    assert not loaded & {"broker_embedded.server.net.secure_connection", "broker_embedded.server.net.tls", "hmac"}
    assert not {name for name in loaded if "acls" in name or "authoriz" in name}


def test_a_start_loads_nothing_of_quotas_before_there_are_any(loaded: set[str]) -> None:
    assert not {name for name in loaded if name.startswith("broker_embedded.quotas")}
    assert not loaded & {"broker_embedded.server.requests.client_quotas", "broker_embedded.controller.client_quotas"}


@pytest.mark.parametrize("served", TABLE.values(), ids=lambda api: api.key.name.lower())
def test_the_handler_of_an_api_is_in_the_file_of_its_name(served: Api) -> None:
    fresh = Api(served.key, versions=(served.min_version, served.max_version))
    assert fresh.handler.__module__ == f"{apis.__name__}.{served.key.name.lower()}"
    assert fresh.on_error is None or callable(fresh.on_error)


def test_every_file_of_an_api_is_served() -> None:
    files = {path.stem for path in Path(apis.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {served.key.name.lower() for served in TABLE.values()}


def test_an_api_knows_nothing_else() -> None:
    with pytest.raises(AttributeError, match="colour"):
        _ = Api(ApiKey.PRODUCE, versions=(3, 13)).colour


def test_a_random_uuid_is_the_one_that_the_standard_library_makes_of_the_same_bits() -> None:
    for seed in range(100):
        assert random_uuid(Random(seed)) == UUID(int=Random(seed).getrandbits(128), version=4).bytes
