"""`ottla cluster quorum`, `features`, `settings` and `transactions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ottla.browse.human_amounts import duration_text, milliseconds, moment
from ottla.cli.operations.notes import say_not_read
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.output import Column, Output, prints
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import SettingInfo
    from ottla.admin.facts.cluster_facts import QuorumInfo, VoterInfo
    from ottla.config import Settings


@click.command()
@reaches_a_cluster
@prints
def quorum(kafka: Settings, out: Output) -> None:
    """Show the metadata quorum: its leader, its voters, and how far each is behind.

    \b
    Examples:
      ottla cluster quorum
      ottla cluster quorum --format json
    """
    from ottla.admin import Part

    with open_admin(kafka) as admin:
        found = admin.facts({Part.QUORUM})
    described = found.quorum
    items = [] if described is None else [_node(node, described) for node in described.nodes]
    columns = ("node", "role", "log_end_offset", "behind", "caught_up")
    leader = {} if described is None else {"leader": described.leader, "epoch": described.leader_epoch}
    out.items("cluster.quorum/1", columns, items, empty="the cluster returned no metadata quorum", **leader)
    say_not_read(found)


@click.command()
@reaches_a_cluster
@prints
def features(kafka: Settings, out: Output) -> None:
    """Show the finalized features, and whether all brokers support higher levels.

    \b
    Examples:
      ottla cluster features
      ottla cluster features --format json
    """
    from ottla.admin import Part

    with open_admin(kafka) as admin:
        found = admin.facts({Part.FEATURES})
    live = [broker for broker in found.brokers if broker.features]
    names = sorted({name for broker in live for name in broker.features} | set(found.finalized_features))
    items = [
        {
            "feature": name,
            "finalized": found.finalized_features.get(name),
            "supported_by_all": min((broker.features.get(name, (0, 0))[1] for broker in live), default=None),
        }
        for name in names
    ]
    columns = ("feature", "finalized", "supported_by_all")
    out.items("cluster.features/1", columns, items, empty="no broker returned a feature")
    say_not_read(found)


@click.command()
@click.argument("broker", metavar="BROKER|all")
@reaches_a_cluster
@prints
@click.option("--defaults", is_flag=True, help="Also settings with default values.")
def settings(broker: str, kafka: Settings, out: Output, defaults: bool) -> None:
    """Show the settings of a broker, or those set for all brokers at once.

    \b
    Examples:
      ottla cluster settings 1
      ottla cluster settings 1 --defaults
      ottla cluster settings all
    """
    with open_admin(kafka) as admin:
        found = admin.broker_settings(broker_id(broker))
    items = [_setting(name, each) for name, each in sorted(found.items()) if defaults or not each.is_default]
    columns = ("setting", "value", "source", "changed_by")
    out.items("cluster.settings/1", columns, items, empty="nothing is set")


@click.command()
@reaches_a_cluster
@prints
@click.option(
    "--open-for", metavar="TIME", default="0s", show_default=True, help="Only transactions open for longer, as 15m."
)
def transactions(kafka: Settings, out: Output, open_for: str) -> None:
    """Show open transactions, the oldest first. Consumers with read_committed wait for them.

    \b
    Examples:
      ottla cluster transactions
      ottla cluster transactions --open-for 15m
    """
    from ottla.admin import Part

    least_ms = milliseconds("--open-for", open_for)
    with open_admin(kafka) as admin:
        found = admin.facts({Part.TRANSACTIONS})
    items: list[dict[str, Any]] = [
        {
            "transactional_id": each.transactional_id,
            "producer_id": each.producer_id,
            "state": each.state,
            "started": moment(each.started_ms),
            "open_for_ms": None if each.started_ms is None else max(0, found.at_ms - each.started_ms),
            "timeout_ms": each.timeout_ms,
            "partitions": [str(place) for place in each.partitions],
        }
        for each in found.transactions
    ]
    items = [item for item in items if (item["open_for_ms"] or 0) >= least_ms]
    items.sort(key=lambda item: -(item["open_for_ms"] or 0))
    columns = (
        "transactional_id",
        "producer_id",
        "state",
        "started",
        Column("open_for_ms", title="open for", text=duration_text),
        Column("timeout_ms", title="timeout", text=duration_text),
        "partitions",
    )
    out.items("cluster.transactions/1", columns, items, empty="no open transactions")
    say_not_read(found)


def broker_id(text: str) -> int | None:
    """Return the broker that is meant; None for `all`."""
    if text == "all":
        return None
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"found {text!r}, wanted the id of a broker, or all")
    return int(text)


def _node(node: VoterInfo, quorum: QuorumInfo) -> dict[str, Any]:
    role = "voter" if node.is_voter else "observer"
    return {
        "node": node.node_id,
        "role": "leader" if node.node_id == quorum.leader else role,
        "log_end_offset": node.log_end_offset,
        "behind": max(0, quorum.high_watermark - node.log_end_offset),
        "caught_up": moment(node.caught_up_ms),
    }


def _setting(name: str, each: SettingInfo) -> dict[str, Any]:
    return {
        "setting": name,
        "value": each.value,
        "source": each.source,
        "changed_by": "restart" if each.is_read_only else "ottla cluster set",
        "sensitive": each.is_sensitive,
    }
