"""What TAB completes: commands without importing them, topics and groups of the cluster, and nothing that hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_output import Run
from command_tree import walked

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.cli.shared.complete import complete_groups, complete_topics

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(cluster: EmbeddedCluster, tmp_path: Path) -> Complete:
    """`complete("topics", "show", "or")`: what bash is offered for the last word."""

    def run(*words: str, **env: str) -> list[str]:
        environment = {
            "OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers,
            "OTTLA_CLUSTERS": str(tmp_path / "clusters.toml"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "_OTTLA_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["ottla", *words]),
            "COMP_CWORD": str(len(words)),
        }
        ended = CliRunner().invoke(main, prog_name="ottla", env=environment | env)
        assert ended.stderr == ""
        return [line.partition(",")[2] for line in ended.stdout.splitlines() if line]

    return run


def test_commands_and_options_are_completed(complete: Complete) -> None:
    assert complete("top") == ["topics"]
    assert complete("topics", "add") == ["add-partitions"]
    assert complete("topics", "list", "--so") == ["--sort"]
    assert complete("topics", "list", "--sort", "re") == ["records"]


def test_names_of_commands_are_completed_without_importing_them() -> None:
    program = (
        "import os, sys\n"
        "os.environ |= {'_OTTLA_COMPLETE': 'bash_complete', 'COMP_WORDS': 'ottla ', 'COMP_CWORD': '1'}\n"
        "from ottla.cli import main\n"
        "try:\n    main(prog_name='ottla')\n"
        "except SystemExit:\n    pass\n"
        "print(sorted(name for name in sys.modules if name.startswith('ottla.cli.')), file=sys.stderr)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "plain,pipeline" in ended.stdout
    assert "ottla.cli.pipelines.pipeline" not in ended.stderr
    assert "ottla.cli.operations" not in ended.stderr


def test_topics_and_groups_are_completed_and_kept_for_a_minute(
    complete: Complete, admin: Admin, topic: str, tmp_path: Path
) -> None:
    admin.apply_reset(admin.plan_reset(f"group-{topic}", to="earliest", topics={topic: None}))
    assert complete("topics", "show", topic) == [topic]
    assert complete("groups", "lag", f"group-{topic}") == [f"group-{topic}"]
    assert complete("groups", "reset", "g", "--topic", topic) == [topic]

    admin.delete_topics(topic)
    assert complete("topics", "show", topic) == [topic], "it is not asked again within a minute"
    for file in (tmp_path / "cache" / "ottla").iterdir():
        old = time.time() - 61
        os.utime(file, (old, old))
    assert complete("topics", "show", topic) == []


WITHOUT_A_CLUSTER = {"pipeline", "broker", "run"}
"""What has addresses of its own, or makes its cluster."""


def test_every_option_and_argument_for_a_topic_or_a_group_is_completed() -> None:
    """Each has one of the two functions: an option that somebody adds is not forgotten."""
    checked = 0
    for path, command in walked(main):
        if path.split()[0] in WITHOUT_A_CLUSTER or "bootstrap_servers" not in {each.name for each in command.params}:
            continue
        for parameter in command.params:
            is_text = isinstance(parameter.type, click.types.StringParamType) and not getattr(parameter, "is_flag", 0)
            if is_text and parameter.name in ("topic", "topics", "to_topic", "group", "groups"):
                wanted = complete_groups if parameter.name.startswith("group") else complete_topics
                assert parameter._custom_shell_complete is wanted, f"{path}: {parameter.name}"
                checked += 1
    assert checked > 30


def test_options_of_topics_and_groups_are_completed(complete: Complete, admin: Admin) -> None:
    admin.create_topics({"orders": TopicSpec(partitions=1)})
    admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={"orders": None}))
    assert complete("acls", "list", "--topic", "ord") == ["orders"]
    assert complete("acls", "create", "--group", "bil") == ["billing"]
    assert complete("cluster", "facts", "--group", "bil") == ["billing"]
    assert complete("dlq", "redrive", "dead", "--to", "ord") == ["orders"]
    assert complete("plan", "rebalance", "--topics", "ord") == ["orders"]


def test_a_line_that_cannot_be_completed_is_silent_and_quick(complete: Complete, tmp_path: Path) -> None:
    started = time.monotonic()
    assert complete("topics", "show", "", OTTLA_BOOTSTRAP_SERVERS="127.0.0.1:1") == []
    assert complete("topics", "show", "-b", "127.0.0.1:1", "") == []
    assert complete("topics", "show", "--cluster", "missing", "") == []
    assert "half" not in complete("topics", "show", "--set", "half", "")
    assert "half" not in complete("topics", "show", "--set", "half", "")
    assert time.monotonic() - started < 5
    (tmp_path / "clusters.toml").write_text(
        f'[clusters.prod]\nbootstrap.servers = "127.0.0.1:1"\nsasl.password_command = "touch {tmp_path}/asked"\n'
    )
    (tmp_path / "clusters.toml").chmod(0o600)
    assert complete("topics", "show", "--cluster", "prod", "") == []
    assert not (tmp_path / "asked").exists(), "a TAB asks for no password"


def test_a_name_that_moves_the_cursor_is_not_offered(complete: Complete, tmp_path: Path) -> None:
    assert complete("topics", "show", "") is not None
    (file,) = (tmp_path / "cache" / "ottla").glob("topics-*.json")
    file.write_text('["good", "bad\\u001b[31m"]')
    assert complete("topics", "show", "") == ["good"]
    file.write_text("not json")
    assert "good" not in complete("topics", "show", ""), "a cache that is damaged is asked anew"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(ottla: Run, shell: str) -> None:
    assert "_OTTLA_COMPLETE" in ottla("completion", shell).stdout
    assert ottla("completion", "tcsh").exit_code == 2
