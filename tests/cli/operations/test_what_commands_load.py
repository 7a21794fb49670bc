"""What a command loads is most of what a person waits for: nothing is imported that it has no use for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec

PROGRAM = """
import os, sys
sys.argv[0] = "ottla"
from ottla.cli import main
ended = 0
try:
    main()
except SystemExit as exit:
    ended = exit.code or 0
print(*sys.modules, file=sys.stderr)
sys.exit(ended)
"""

CLIENTS = {"confluent_kafka", "aiokafka", "pyarrow", "numpy", "pandas", "pyspark"}
OF_OTHER_WORK = {
    *("asyncio", "concurrent", "multiprocessing", "subprocess", "logging", "unittest"),
    *("ssl", "hashlib", "hmac", "secrets", "http", "email", "urllib", "importlib.metadata", "pathlib", "tempfile"),
    *("msgspec", "cramjam", "google_crc32c", "json", "tomllib", "decimal", "random", "rich"),
}
"""Of the standard library and of what Ottla stands on: what reads files, makes records, encrypts, or works side by
side."""
OF_RECORDS = {"ottla.records", "ottla_wire.records", "ottla.serdes", "ottla.telemetry", "ottla.producer", "ottla.app"}


def loaded_by(*arguments: str) -> set[str]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout
    return set(ended.stderr.splitlines()[-1].split())


@pytest.fixture(scope="module")
def group(admin: Admin) -> str:
    admin.create_topics({"orders": TopicSpec(partitions=3)})
    admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={"orders": None}))
    return "billing"


def test_help_loads_click_and_the_names_of_commands() -> None:
    loaded = loaded_by("--help")
    assert not loaded & (CLIENTS | OF_OTHER_WORK | OF_RECORDS)
    assert {name for name in loaded if name.startswith("ottla.")} <= {
        *("ottla.cli", "ottla.cli.shared", "ottla.cli.shared.groups", "ottla.cli.shared.options"),
        "ottla.cli.shared.output",
        *(
            "ottla.cli.shared.signals",
            "ottla.cli.shared.streams",
            "ottla.cli.shared.visible",
            "ottla.cli.shared.words",
            "ottla.errors",
            "ottla.lazy",
        ),
    }


def test_no_garbage_is_looked_for_while_help_is_shown_and_it_is_when_a_command_runs() -> None:
    program = """
import gc, sys
from ottla.__main__ import main
looked = []
gc.callbacks.append(lambda phase, info: looked.append(phase))
try:
    main()
finally:
    print("on" if gc.isenabled() else "off", len(looked), file=sys.stderr)
"""

    def collector(*arguments: str) -> str:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stderr.splitlines()[-1]

    assert collector("--help") == "off 0"
    assert collector("completion", "bash").startswith("on ")


def test_who_only_looks_at_a_command_has_its_collector_left_alone() -> None:
    """As a list of all tests does: garbage that was looked for from then on took it a tenth of its time."""
    program = """
import click, gc
from ottla.cli import main
gc.disable()
main.get_command(click.Context(main), "completion")
print(gc.isenabled())
"""
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60).stdout == "False\n"
    )


def test_a_list_of_topics_loads_what_asks_and_what_prints(cluster: EmbeddedCluster, group: str) -> None:
    first = cluster.bootstrap_servers.partition(",")[0]
    loaded = loaded_by("topics", "list", "-b", first)
    assert not loaded & (CLIENTS | OF_OTHER_WORK | OF_RECORDS)
    assert messages_of(loaded) == {"api_versions", "describe_cluster", "metadata", "sasl_handshake"}
    assert {name for name in loaded if name.startswith("ottla.cli.operations.topics.")} == {
        "ottla.cli.operations.topics.show"
    }
    assert browsed(loaded) == {"human_amounts", "topic_items"}
    assert not loaded & {
        "ottla.admin.operations.topic_changes",
        "ottla.admin.facts.facts_file",
        "ottla.admin.operations.setting_changes",
        "ottla.admin.doctor",
    }


def test_the_lag_of_a_group_loads_what_asks_and_what_prints(cluster: EmbeddedCluster, group: str) -> None:
    """Brokers are asked side by side here, so there are threads."""
    loaded = loaded_by("groups", "lag", group, "-b", cluster.bootstrap_servers)
    assert not loaded & (CLIENTS | (OF_OTHER_WORK - {"concurrent", "logging"}) | OF_RECORDS)
    assert {name for name in loaded if name.startswith("ottla.cli.operations.groups.")} == {
        "ottla.cli.operations.groups.show",
    }
    assert browsed(loaded) == {"group_items", "human_amounts", "small_lags"}
    assert not loaded & {
        "ottla.admin.operations.offset_resets",
        "ottla.admin.facts.facts_file",
        "ottla.admin.operations.topic_changes",
    }
    assert messages_of(loaded) <= {
        *("api_versions", "consumer_group_describe", "describe_cluster", "describe_groups", "find_coordinator"),
        *("list_offsets", "metadata", "offset_fetch", "sasl_handshake", "share_group_describe"),
        "describe_share_group_offsets",
    }


def browsed(loaded: set[str]) -> set[str]:
    """Which modules of `ottla.browse`."""
    return {name.removeprefix("ottla.browse.") for name in loaded if name.startswith("ottla.browse.")}


def messages_of(loaded: set[str]) -> set[str]:
    """Whose codecs are compiled: each when its API is first used."""
    prefix = "ottla_wire.protocol.messages."
    return {name.removeprefix(prefix) for name in loaded if name.startswith(prefix)}
