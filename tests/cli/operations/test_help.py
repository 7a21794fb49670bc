"""`--help` of every command of operations: quick, of one shape, and with examples that run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from command_output import follows_its_schema
from help_examples import commands_of, examples_of

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import COMMANDS, main
from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter
from ottla.testing import Kafka

NOUNS = (
    *("topics", "groups", "cluster", "contexts", "doctor", "plan", "completion"),
    *("consume", "produce", "dlq", "acls", "quotas"),
)
LIGHT = tuple(noun for noun in NOUNS if noun not in ("contexts", "acls", "quotas"))
"""Those whose help needs no settings and no client."""
AUTHORIZED = {
    "offsets.topic.replication.factor": "1",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
CLUSTERS = """
[clusters.prod]
bootstrap.servers = "{servers}"
[clusters.dev]
bootstrap.servers = "localhost:9092"
"""


ALL = [each for noun in NOUNS for each in commands_of(noun)]
RUN_ELSEWHERE = {
    "tests/cli/test_users_command.py": ("users",),
    "tests/cli/test_new_command.py": ("new",),
    "tests/cli/test_schemas_command.py": ("schemas",),
    "tests/cli/operations/test_apply_command.py": ("apply",),
    "tests/asyncapi/test_asyncapi_command.py": ("asyncapi",),
    "tests/cli/test_help_of_services.py": (
        *(
            "broker",
            "config",
            "registry",
            "console",
            "explain",
            "exporter",
            "store-offsets",
            "outbox",
            "run",
            "schedule",
        ),
    ),
    "tests/bridge/test_bridge_command.py": ("bridge",),
    "tests/main_job/test_demo_runs.py": ("demo",),
    "tests/spark/test_spark_pipeline_help.py": ("pipeline",),
}
"""Where the examples of the other commands are run."""


def test_the_examples_of_every_command_are_run_somewhere() -> None:
    assert sorted([*NOUNS, *(noun for nouns in RUN_ELSEWHERE.values() for noun in nouns)]) == sorted(COMMANDS)
    for file, nouns in RUN_ELSEWHERE.items():
        source = Path(__file__).parents[3].joinpath(file).read_text("utf-8")
        assert all(f'"{noun}"' in source for noun in nouns), file


@pytest.mark.parametrize("noun", sorted(COMMANDS))
def test_a_command_explains_itself_with_examples(noun: str) -> None:
    for path, command in commands_of(noun):
        shown = CliRunner().invoke(main, [*path.split(), "--help"])
        assert shown.exit_code == 0, path
        examples = examples_of(shown.stdout)
        assert examples, f"{path}: an example is what people read first"
        assert all(f"ottla {path}" in example for example in examples), path
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{path}: {parameter.name} says nothing"


def restored(cluster: EmbeddedCluster, admin: Admin) -> None:
    """What the examples speak of: topics with records, dead letters, a group, and files."""
    for name in [each.name for each in admin.list_topics()]:
        admin.delete_topics(name)
    for group in admin.list_groups():
        admin.delete_groups(group.group_id)
    for name in ("orders", "copy", "orders.to-repair"):
        admin.create_topics({name: TopicSpec(partitions=3, replication_factor=2)})
    admin.create_topics({"orders.dead-letters": TopicSpec(partitions=1)})
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    kafka.produce("orders", [b'{"total": 101}', b'{"total": 2}'], partition=0)
    for kind in ("malformed", "invalid"):
        letter = build_dead_letter(
            topic="orders",
            partition=0,
            offset=0,
            timestamp_ms=1_700_000_000_000,
            key=None,
            value=b"1",
            headers=[],
            reason=DeadLetterReason(
                kind=kind,
                error_type="TimeoutError",
                message="no answer",
                stack_trace="",
                attempts=1,
                group="billing",
                dead_lettered_ms=1_700_000_000_000,
            ),
        )
        kafka.produce("orders.dead-letters", [letter.value], headers=letter.headers)
    admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={"orders": None}))
    plan = admin.plan_reset("billing", to="latest")
    admin.apply_reset(plan, undo_file="billing-offsets.json")
    Path("order.json").write_text('{"total": 7}\n')
    Path("lines.txt").write_text("a:1\nb:2\n")
    Path("clusters.toml").write_text(CLUSTERS.format(servers=cluster.bootstrap_servers))
    Path("clusters.toml").chmod(0o600)


ELSEWHERE = ("plan watch", "plan throttle")
"""One goes on until it is stopped, one needs a run under way: test_plan_watch_and_throttle.py has them."""
EXAMPLES = [
    (path, example) for path, command in ALL for example in examples_of(command.help or "") if path not in ELSEWHERE
]
WITH_A_PLAN = ("plan check", "plan run", "plan status", "plan cancel")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config=AUTHORIZED) as running:
        yield running


def command_of(path: str) -> click.Command:
    return dict(ALL)[path]


def prints_what_its_schema_says(run: Callable[[str], Result], path: str, line: str) -> None:
    """As JSON, and without a change."""
    if path in ("produce", "contexts add") or "--explain" in line:  # what cannot be done twice
        return
    is_change = any(parameter.name == "dry_run" for parameter in command_of(path).params)
    ended = run(f"{line.replace(' --format json', '')} --format json{' --dry-run' * is_change}")
    assert ended.exit_code in (0, 1), ended.output
    if path == "consume":
        for record in ended.stdout.splitlines():
            follows_its_schema(json.loads(record))
    elif ended.stdout:
        follows_its_schema(json.loads(ended.stdout))


@pytest.mark.complete
@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_the_examples_run(
    path: str,
    example: str,
    cluster: EmbeddedCluster,
    admin: Admin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    restored(cluster, admin)
    environment = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": "clusters.toml"}

    def run(line: str) -> Result:
        return CliRunner().invoke(main, shlex.split(line)[1:], env=environment)

    if example.startswith(tuple(f"ottla {each}" for each in WITH_A_PLAN)):
        assert run("ottla plan replication-factor orders 3 --sample 0s -o rebalance.json").exit_code == 0
        if "run" not in example:
            assert run("ottla plan run rebalance.json --yes --poll 0.05").exit_code == 0
    if re.search(r" [|<] ", example):
        path_with_ottla = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        in_a_shell = subprocess.run(
            ["sh", "-c", example],
            env={**os.environ, **environment, "PATH": path_with_ottla},
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert in_a_shell.returncode == 0, in_a_shell.stderr
        return
    line = re.sub(r" >+ [^ ']+$", "", example)
    if line.startswith("ottla plan run "):
        line += " --sample 1s --poll 0.05"  # in place of 10 s and 2 s
    if any(parameter.name in ("output_format", "form") for parameter in command_of(path).params):
        prints_what_its_schema_says(run, path, line)
    ended = run(line)
    if path == "doctor":
        assert ended.exit_code in (0, 1), ended.output  # it finds what a small cluster of a test is
    else:
        assert ended.exit_code == 0, ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize("noun", LIGHT)
def test_help_loads_neither_a_client_nor_the_admin_library(noun: str) -> None:
    program = (
        "import sys\nsys.argv = ['ottla', *sys.argv[1:], '--help']\nfrom ottla.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, noun], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(ended.stderr.split())
    assert not loaded & {
        "confluent_kafka",
        "pyarrow",
        "aiokafka",
        "ottla.admin.admin_client",
        "ottla.config",
        "msgspec",
    }
