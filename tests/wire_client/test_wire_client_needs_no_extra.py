"""The wire client, and the commands that stand on it, where no extra is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker_embedded.cluster import EmbeddedCluster

WITHOUT_EXTRAS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "pyarrow", "pyspark", "fastavro"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run_without_extras(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS + code, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_blocker_blocks() -> None:
    with pytest.raises(AssertionError, match="pyarrow and numpy"):
        run_without_extras("import ottla.columnar")


def test_every_module_of_the_wire_client_is_imported_without_numpy_and_pyarrow() -> None:
    code = """
import importlib, pkgutil, ottla.wire_client
names = [each.name for each in pkgutil.walk_packages(ottla.wire_client.__path__, "ottla.wire_client.")]
for name in names:
    importlib.import_module(name)
for name in ottla.wire_client.__all__:
    getattr(ottla.wire_client, name)
print(len(names) > 5)
"""
    assert run_without_extras(code) == "True"


def test_quotas_are_set_and_listed_without_pyarrow() -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        command = "from ottla.cli import main\nmain()"
        servers = ("--bootstrap-servers", cluster.bootstrap_servers)
        run_without_extras(command, "quotas", "set", "producer_byte_rate=1024", "--user", "alice", "--yes", *servers)
        listed = run_without_extras(command, "quotas", "list", *servers)
    assert listed.split() == ["alice", "producer_byte_rate", "1024"]
