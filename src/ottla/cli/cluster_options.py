"""How a command reaches a cluster: `--bootstrap-servers`, `--set NAME=VALUE`, and the environment behind them.

Every command that talks to Kafka takes the same two options and gets one `Settings`. Later sources win: Ottla's
defaults, OTTLA_CLIENT_* and OTTLA_ADMIN_* in the environment, the options.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from ottla.config import Settings, admin_settings
from ottla.config.pairs import parse_pairs

F = TypeVar("F", bound=Callable[..., Any])

_ANSWER_S = 5.0
DEFAULT_SERVERS = "localhost:9092"
_SECRETS = "OTTLA_CLIENT_SASL_PASSWORD=... in the environment is sasl.password."


def set_option(example: str, *, what: str, metavar: str = "NAME=VALUE", target: str = "settings") -> Callable[[F], F]:
    """`--set NAME=VALUE`, repeatable. The command gets a dict as `target`."""

    def parse(_ctx: click.Context, _option: click.Parameter, pairs: Iterable[str]) -> dict[str, str]:
        return parse_pairs(pairs, wanted=metavar, example=example)

    return click.option(
        "--set", target, multiple=True, metavar=metavar, callback=parse, help=f"{what}, as in {example}; repeatable."
    )


def reaches_a_cluster(command: F) -> F:
    """Give a command the two options. It is called with `kafka`, the settings of an admin client.

    Whether something answers there that takes them is known before: a wrong password or port is one line, and soon.
    """

    @functools.wraps(command)
    def with_cluster(*args: Any, bootstrap_servers: str | None, settings: dict[str, str], **options: Any) -> Any:
        kafka = cluster_settings(bootstrap_servers, settings)
        if not options.get("dry_run"):
            from ottla.sync.client.reachable import check_answering

            check_answering(kafka["bootstrap.servers"], kafka, timeout_s=_ANSWER_S)
        return command(*args, kafka=kafka, **options)

    for option in (
        set_option("sasl.username=admin", what=f"A setting of the client ({_SECRETS})"),
        click.option(
            "--bootstrap-servers",
            envvar="OTTLA_BOOTSTRAP_SERVERS",
            metavar="HOST:PORT[,...]",
            help=f"Where Kafka is.  [default: {DEFAULT_SERVERS}]",
        ),
    ):
        with_cluster = option(with_cluster)
    return with_cluster  # type: ignore[return-value]  # a command all the same


def cluster_settings(bootstrap_servers: str | None, settings: dict[str, str]) -> Settings:
    """What `reaches_a_cluster` gives. An address in the environment (OTTLA_CLIENT_BOOTSTRAP_SERVERS) counts too."""
    resolved = admin_settings(bootstrap_servers, settings=settings)
    if "bootstrap.servers" in resolved:
        return resolved
    return admin_settings(DEFAULT_SERVERS, settings=settings)
