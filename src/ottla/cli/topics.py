"""`ottla topics`: what topics there are, and new ones."""

from __future__ import annotations

import click

from ottla.cli.shared.cluster_options import check_reachable, reaches_a_cluster
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.output import Column, Output, prints
from ottla.config import Settings, TopicSpec
from ottla.config.pairs import parse_pairs
from ottla.errors import InputError
from ottla.records import topic_problem


@click.group(cls=CommandGroup)
def topics() -> None:
    """List and create topics."""


@topics.command("list")
@reaches_a_cluster
@prints
@click.option("--internal", is_flag=True, help="Also those of Kafka itself, as __consumer_offsets.")
def list_topics(kafka: Settings, out: Output, internal: bool) -> None:
    """Show each topic with its partitions and replicas."""
    from ottla.sync.admin.topics import topic_shapes

    check_reachable(kafka)
    found = topic_shapes(kafka)
    items = (
        {"topic": name, "partitions": partitions, "replicas": replicas}
        for name, (partitions, replicas) in sorted(found.items())
        if internal or not name.startswith("__")
    )
    columns = (Column("topic"), Column("partitions", right=True), Column("replicas", right=True))
    out.items("topics.list/1", columns, items, empty="no topics")


@topics.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--partitions", type=click.IntRange(1), help="The cluster's own number (num.partitions) if left out.")
@click.option("--replication-factor", type=click.IntRange(1), help="The cluster's own if left out.")
@click.option(
    "--config", "pairs", multiple=True, metavar="NAME=VALUE", help="A topic's setting, as retention.ms=86400000."
)
@reaches_a_cluster
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    pairs: tuple[str, ...],
    kafka: Settings,
) -> None:
    """Create topics. One that exists stays as it is."""
    from ottla.sync.client.declared_topics import ensure_topics

    for name in names:
        problem = topic_problem(name)
        if problem is not None:
            raise InputError(problem)
    config = parse_pairs(pairs, wanted="NAME=VALUE", example="retention.ms=86400000", option="--config")
    spec = TopicSpec(partitions=partitions, replication_factor=replication_factor, config=config)
    check_reachable(kafka)
    for name, before in ensure_topics(kafka, dict.fromkeys(names, spec)).items():
        click.echo(f"{name}: created" if before is None else f"{name}: exists, with {before} partitions; not changed")
