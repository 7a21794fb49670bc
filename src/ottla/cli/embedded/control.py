"""The commands of `ottla broker` for a cluster that runs: brokers, links, disks, time, waits, by its control API."""

from __future__ import annotations

from typing import Any

import click

from ottla.browse.control_api import call
from ottla.browse.human_amounts import bytes_of
from ottla.cli.shared.options import CONTROL
from ottla.cli.shared.parameter_types import Milliseconds

_NODE = click.argument("node", type=click.IntRange(min=0))


@click.command()
@click.option("--rack", help="The rack of the broker.")
@CONTROL
def add(rack: str | None, control: str | None) -> None:
    """Add an empty broker. Kafka moves no replicas to it by itself: see `ottla plan add-brokers`.

    \b
    Example:
      ottla broker add --rack d
    """
    answer = call(control, "POST", "/brokers", {} if rack is None else {"rack": rack})
    click.echo(f"broker {answer['broker']}: {answer['state']} {answer['address']}")


@click.command()
@_NODE
@click.option("--lose-unsynced", is_flag=True, help="As in a power cut: data that was not fsynced is lost.")
@CONTROL
def kill(node: int, lose_unsynced: bool, control: str | None) -> None:
    """Kill broker NODE, as kill -9 does.

    \b
    Example:
      ottla broker kill 2
    """
    _act(control, node, "kill", {"lose_unsynced": lose_unsynced})


@click.command()
@_NODE
@CONTROL
def stop(node: int, control: str | None) -> None:
    """Stop broker NODE cleanly: its leaderships move first.

    \b
    Example:
      ottla broker stop 2
    """
    _act(control, node, "stop")


@click.command()
@_NODE
@CONTROL
def pause(node: int, control: str | None) -> None:
    """Pause broker NODE. Its connections stay open.

    \b
    Example:
      ottla broker pause 2
    """
    _act(control, node, "pause")


@click.command()
@_NODE
@CONTROL
def resume(node: int, control: str | None) -> None:
    """Resume the paused broker NODE.

    \b
    Example:
      ottla broker resume 2
    """
    _act(control, node, "resume")


def start_node(control: str | None, node: int) -> None:
    """Start a node: `ottla broker start NODE`."""
    _act(control, node, "start")


def _act(control: str | None, node: int, action: str, body: dict[str, Any] | None = None) -> None:
    answer = call(control, "POST", f"/brokers/{node}/{action}", body or {})
    click.echo(f"broker {answer['broker']}: {answer['state']}")


@click.command()
@CONTROL
def status(control: str | None) -> None:
    """Show brokers, and each partition's leader, in-sync replicas and high watermark.

    \b
    Example:
      ottla broker status
    """
    cluster = call(control, "GET", "/cluster")
    click.echo(f"cluster {cluster['cluster_id']}, controller {cluster['controller']}")
    for each in cluster["brokers"]:
        fenced = ", fenced" if each["fenced"] else ""
        offline = "".join(f", {path} offline: {reason}" for path, reason in each["offline_dirs"].items())
        click.echo(f"broker {each['id']}  {each['address']}  {each['state']}{fenced}{offline}")
    for each in cluster["partitions"]:
        click.echo(
            f"{each['topic']}-{each['partition']}  leader {each['leader']} (epoch {each['leader_epoch']})"
            f"  replicas {each['replicas']}  isr {each['isr']}"
            f"  high watermark {each['high_watermark']} of {each['log_end_offset']}"
        )


@click.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0), default=0)
@click.option("--offset", type=click.IntRange(min=0), help="Why share groups do not get the record at this offset.")
@click.option("--group", help="Only this share group.")
@CONTROL
def explain(topic: str, partition: int, offset: int | None, group: str | None, control: str | None) -> None:
    """Say why a high watermark does not move, a produce is refused, a reader stops, or a queue does not get a record.

    \b
    Examples:
      ottla broker explain orders 0
      ottla broker explain images 0 --offset 17 --group resize
    """
    asked = {"topic": topic, "partition": partition, "offset": offset, "group": group}
    answer = call(control, "GET", "/explain", query={name: each for name, each in asked.items() if each is not None})
    for sentence in answer["sentences"]:
        click.echo(sentence)


@click.command()
@click.option("--topic", help="The topic; without --partition, all its partitions.")
@click.option("--partition", type=click.IntRange(min=0), help="The partition of the topic.")
@click.option("--leader", metavar="NODE|any|none", help="The leader of the partition, or any.")
@click.option("--isr", metavar="NODE,...", help="The in-sync replicas, exactly.")
@click.option("--high-watermark", type=int, help="The least high watermark.")
@click.option("--controller", metavar="NODE|any", help="The active controller.")
@click.option("--group", help="A group that is stable, or in the state of --state.")
@click.option("--members", type=click.IntRange(min=0), help="Number of members of the group.")
@click.option("--state", help="A state of groups by its name in Kafka.")
@click.option("--fault", type=int, help="A fault by its number, with --hits.")
@click.option("--hits", type=click.IntRange(min=0), help="Least number of requests that the fault has hit.")
@click.option(
    "--timeout-ms", type=Milliseconds(min=0), default=10_000, show_default=True, help="How long to wait at most."
)
@CONTROL
def wait(control: str | None, timeout_ms: int, **conditions: Any) -> None:
    """Wait until all conditions hold. Exit code 2: one did not, and stderr says which.

    \b
    Examples:
      ottla broker wait --topic orders --partition 0 --leader any
      ottla broker wait --controller any --timeout-ms 20000
    """
    query = {name: value for name, value in conditions.items() if value is not None}
    answer = call(control, "GET", "/wait", query={**query, "timeout_ms": timeout_ms}, timeout_s=timeout_ms / 1_000 + 60)
    click.echo(f"waited {answer['waited_ms']} ms")


@click.group()
def links() -> None:
    """Cut, slow and heal the links between brokers.

    \b
    Example:
      ottla broker links cut 1 2
    """


@links.command("list")
@CONTROL
def list_links(control: str | None) -> None:
    """List the links that are cut or slow.

    \b
    Example:
      ottla broker links list
    """
    _show_links(call(control, "GET", "/links"))


@links.command()
@click.argument("a", type=click.IntRange(min=0))
@click.argument("b", type=click.IntRange(min=0))
@click.option("--one-way", is_flag=True, help="Only requests from A to B.")
@CONTROL
def cut(a: int, b: int, one_way: bool, control: str | None) -> None:
    """Cut the link between brokers A and B.

    \b
    Example:
      ottla broker links cut 1 2
    """
    _show_links(call(control, "POST", "/links/cut", {"a": a, "b": b, "one_way": one_way}))


@links.command()
@click.argument("a", type=click.IntRange(min=0))
@click.argument("b", type=click.IntRange(min=0))
@click.option("--delay-ms", type=Milliseconds(min=0), required=True, help="The added latency of each message.")
@click.option("--one-way", is_flag=True, help="Only requests from A to B.")
@CONTROL
def slow(a: int, b: int, delay_ms: int, one_way: bool, control: str | None) -> None:
    """Add latency between brokers A and B.

    \b
    Example:
      ottla broker links slow 1 2 --delay-ms 50
    """
    _show_links(call(control, "POST", "/links/slow", {"a": a, "b": b, "delay_ms": delay_ms, "one_way": one_way}))


@links.command()
@click.argument("a", type=click.IntRange(min=0), required=False)
@click.argument("b", type=click.IntRange(min=0), required=False)
@CONTROL
def heal(a: int | None, b: int | None, control: str | None) -> None:
    """Heal all links, or those of broker A, or the one between A and B.

    \b
    Example:
      ottla broker links heal
    """
    ends = {name: node for name, node in (("a", a), ("b", b)) if node is not None}
    _show_links(call(control, "POST", "/links/heal", ends))


def _show_links(answer: dict[str, Any]) -> None:
    for link in answer["links"]:
        if "node" in link:
            click.echo(f"node {link['node']}: {link['state']}")
        else:
            late = f" by {link['delay_ms']} ms" if "delay_ms" in link else ""
            click.echo(f"{link['source']} -> {link['target']}: {link['state']}{late}")
    if not answer["links"]:
        click.echo("all links are whole")


@click.group()
def disks() -> None:
    """Fill, slow and break the brokers' disks.

    \b
    Example:
      ottla broker disks break 2 slow --delay-ms 20
    """


@disks.command("list")
@CONTROL
def list_disks(control: str | None) -> None:
    """List the faults of disks.

    \b
    Example:
      ottla broker disks list
    """
    _show_disks(call(control, "GET", "/disks"))


@disks.command("break")
@_NODE
@click.argument("kind", type=click.Choice(["full", "limited", "slow", "fsync-error", "torn-write", "offline"]))
@click.option(
    "--dir", "directory", type=click.IntRange(min=0), help="One log directory of the broker; all if left out."
)
@click.option("--count", type=click.IntRange(min=1), help="For fsync-error and torn-write: how many times.")
@click.option("--delay-ms", type=Milliseconds(min=1), help="For slow: latency of each operation.")
@click.option("--bytes", "size", metavar="SIZE", help="For limited: size of each directory, as in 10MiB.")
@CONTROL
def break_disk(
    node: int,
    kind: str,
    directory: int | None,
    count: int | None,
    delay_ms: int | None,
    size: str | None,
    control: str | None,
) -> None:
    """Give the disk of broker NODE a fault of this KIND.

    \b
    Examples:
      ottla broker disks break 2 full
      ottla broker disks break 2 slow --delay-ms 20
    """
    limit = None if size is None else bytes_of("--bytes", size)
    named = {"broker": node, "dir": directory, "count": count, "delay_ms": delay_ms, "bytes": limit}
    body = {name: value for name, value in named.items() if value is not None}
    _show_disks(call(control, "POST", f"/disks/{kind}", body))


@disks.command("heal")
@click.argument("node", type=click.IntRange(min=0), required=False)
@CONTROL
def heal_disks(node: int | None, control: str | None) -> None:
    """Remove the faults of all disks, or of those of broker NODE.

    \b
    Example:
      ottla broker disks heal
    """
    _show_disks(call(control, "POST", "/disks/heal", {} if node is None else {"broker": node}))


def _show_disks(answer: dict[str, Any]) -> None:
    for disk in answer["disks"]:
        late = f" by {disk['delay_ms']} ms" if "delay_ms" in disk else ""
        click.echo(f"broker {disk['broker']}: {disk['kind']}{late}  {disk['path']}  ({disk['hits']} hits)")
    if not answer["disks"]:
        click.echo("all disks are well")


@click.command()
@click.argument("ms", type=Milliseconds(min=0))
@CONTROL
def advance(ms: int, control: str | None) -> None:
    """Move the time of a cluster with --virtual-clock forward by MS milliseconds.

    \b
    Example:
      ottla broker advance 3600000
    """
    click.echo(f"now {call(control, 'POST', '/clock/advance', {'ms': ms})['now_ms']} ms")
