"""`ottla groups list`, `show` and `lag`. Offsets are asked for only where lag is shown."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from ottla.browse.group_items import (
    group_detail,
    group_item,
    lag_item,
    lagging,
    member_items,
    next_unread,
    unread_since,
)
from ottla.browse.human_amounts import duration_text, moment
from ottla.browse.small_lags import with_small_lags_counted
from ottla.cli.shared.cluster_options import cluster_opener, open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_groups
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Column, Format, Output, none_or, prints, say, unknown_or, warn
from ottla.cli.shared.parameter_types import Seconds
from ottla.cli.shared.progress import ProgressLine
from ottla.cli.shared.streams import wait_for_reader
from ottla.cli.shared.visible import visible

if TYPE_CHECKING:
    from ottla.admin import GroupLag
    from ottla.config import Settings

_STATES = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead")


_LAG = (
    "topic",
    "partition",
    Column("committed", text=none_or),
    Column("end_offset", text=unknown_or),
    Column("lag", text=unknown_or),
    "lost",
    "held_at",
    "client",
)
_LIMITED = Column("limited", text=lambda is_limited: "limited" if is_limited else "")


_exclude = click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Leave out groups that match, as 'ottla-*'; repeatable."
)


@click.command("list")
@click.argument("pattern", required=False, shell_complete=complete_groups)
@reaches_a_cluster
@prints
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only groups in this state.",
)
@_exclude
@click.option("--lag", "with_lag", is_flag=True, help="Show the lag of each group.")
@click.option("--lagging", is_flag=True, help="Only groups that are behind, the furthest first.")
def list_groups(
    kafka: Settings,
    out: Output,
    pattern: str | None,
    states: tuple[str, ...],
    exclude: tuple[str, ...],
    with_lag: bool,
    lagging: bool,
) -> None:
    """List groups: all, or those that match PATTERN, as 'billing*'.

    LAG counts unread records, LOST those that retention deleted before they were read. LAG is empty or unknown where a
    partition has no leader, say.

    \b
    Examples:
      ottla groups list
      ottla groups list 'billing*' --state Empty
      ottla groups list --lagging --exclude 'ottla-*' --format json
    """
    wanted = {state.lower() for state in states}
    with_lag = with_lag or lagging
    with open_admin(kafka) as admin:
        found = [
            group
            for group in admin.list_groups()
            if (pattern is None or fnmatchcase(group.group_id, pattern))
            and (not wanted or group.state.lower() in wanted)
            and not any(fnmatchcase(group.group_id, each) for each in exclude)
        ]
        names = [group.group_id for group in found]
        lags = {each.group_id: each for each in admin.group_lag(*names)} if with_lag and names else {}
    items: list[dict[str, Any]] = []
    for group in found:
        behind = lags.get(group.group_id)
        item = group_item(group, behind, with_lag=with_lag)
        if not lagging or (behind is not None and behind.total != 0):
            items.append(item)
    items.sort(key=lambda item: item["group"])
    if lagging:  # those of which it is not known first: they may be the furthest
        items.sort(key=lambda item: math.inf if item["lag"] is None else item["lag"], reverse=True)
    columns: list[Column | str] = ["group", "type", "state", "coordinator"]
    if with_lag:
        columns += [Column("lag", text=unknown_or), "lost"]
    out.items("groups.list/1", columns, items, empty="no groups")
    for behind in lags.values():
        _say_problems(behind)


@click.command()
@click.argument("group", shell_complete=complete_groups)
@reaches_a_cluster
@prints
@click.option("--members", "with_members", is_flag=True, help="Show members, and what is assigned to each.")
def show(group: str, kafka: Settings, out: Output, with_members: bool) -> None:
    """Show GROUP: its state, its members, and its lag by partition.

    \b
    Examples:
      ottla groups show billing
      ottla groups show billing --members
      ottla groups show billing --format json
    """
    with open_admin(kafka) as admin:
        (fact,) = admin.describe_groups(group)
        (behind,) = admin.group_lag(group)
    item, members = group_detail(fact, behind), member_items(fact)
    partitions = [lag_item(each) for each in behind.partitions]
    if out.format is Format.JSON:
        out.one("groups.show/1", {**item, "member_list": members, "partitions": partitions})
        return
    is_table = out.format is Format.TABLE
    if is_table or not with_members:
        is_known = item["lag"] is not None
        shown = {name: value for name, value in item.items() if not (is_table and is_known and name == "lag_at_least")}
        out.one("groups.show/1", shown)
    if with_members:
        if is_table:
            click.echo()
        columns = ("member", "instance", "client", "host", "partitions")
        out.items("groups.members/1", columns, members, empty="no members")
    if is_table:
        click.echo()
        out.items("groups.lag/1", [*_LAG, _LIMITED], partitions, empty="nothing is committed")
        _say_where_leases_are(behind)


@click.command()
@click.argument("groups", metavar="[GROUP...]", nargs=-1, shell_complete=complete_groups)
@reaches_a_cluster
@prints
@click.option(
    "--age", "with_age", is_flag=True, help="Show how long the first unread record of each partition has waited."
)
@_exclude
@click.option("--above", type=click.IntRange(0), metavar="RECORDS", help="Exit with 1 if a group is further behind.")
@click.option("--watch", type=Seconds(0, min_open=True), metavar="SECONDS", help="Repeat until Ctrl-C.")
@click.option("--times", type=click.IntRange(1), metavar="N", help="With --watch: how often to repeat.")
def lag(
    groups: tuple[str, ...],
    kafka: Settings,
    out: Output,
    with_age: bool,
    exclude: tuple[str, ...],
    above: int | None,
    watch: float | None,
    times: int | None,
) -> None:
    """Show how far groups are behind on each partition; all groups if none is named.

    Lag counts from the committed offset, or from the first record that is still in the log: offsets, and records where
    there are 100 or fewer. HELD_AT is the offset where
    an open transaction stops read_committed consumers. LIMITED says that, at its last commit, records waited for the
    handler's max_rate. If nothing is committed, LAG is the number of records that the
    group would start before. A negative LAG is a committed offset beyond the end of the log. With --above the exit code
    is 1 also if the lag is not known.

    \b
    Examples:
      ottla groups lag billing
      ottla groups lag billing --age --format json
      ottla groups lag billing --above 1000
    """
    rounds = 0
    with open_admin(kafka) as admin:
        while True:
            chosen = tuple(
                group
                for group in admin.group_lag(*groups)
                if not any(fnmatchcase(group.group_id, each) for each in exclude)
            )
            found = with_small_lags_counted(chosen, cluster_opener(kafka))
            ages = _unread_since(kafka, found) if with_age else None
            _print_lag(out, found, ages)
            rounds += 1
            if watch is None or rounds == times or not wait_for_reader(watch):
                break
    if above is not None and not _are_known_within(found, above):
        fail()


def _are_known_within(found: Sequence[GroupLag], above: int) -> bool:
    """Return whether no group is further behind than allowed; names the groups that are, and those of unknown lag."""
    is_within = True
    for each in found:
        if each.at_least > above:
            least = "" if each.total is not None else "at least "
            warn(f"{visible(each.group_id)} is {least}{each.at_least:,} records behind, more than {above:,}")
        elif each.total is None:
            warn(f"{visible(each.group_id)}: not known whether it is more than {above:,} records behind")
        else:
            continue
        is_within = False
    return is_within


def _say_problems(group: GroupLag) -> None:
    """Say on stderr of which partitions the lag is not known, and which commits are beyond the log's end."""
    unknown, beyond = group.unknown, group.beyond_end
    if unknown:
        more = f" and of {len(unknown) - 1} more" if len(unknown) > 1 else ""
        place = f"{unknown[0].topic}-{unknown[0].partition}"
        warn(visible(f"{group.group_id}: the lag of {place}{more} is not known: {unknown[0].problem}"))
    if beyond:
        more = f" and {len(beyond) - 1} more" if len(beyond) > 1 else ""
        first = beyond[0]
        place = f"{first.topic}-{first.partition}{more}"
        problem = f"{first.committed} is committed for {place}, beyond the log's end {first.log_end}"
        warn(visible(f"{group.group_id}: {problem}: the next member begins where auto.offset.reset says"))


def _say_where_leases_are(*groups: GroupLag) -> None:
    """Say where the leases of share groups are seen: Kafka's protocol has no request for their number and age."""
    if any(each.is_counted for group in groups for each in group.partitions):
        say(
            "leases: Kafka does not report them. ottla.queue.in_flight and ottla.queue.oldest_lease.age are metrics of"
            " the members, which ottla run --console-port shows too"
        )


def _print_lag(out: Output, found: Sequence[GroupLag], ages: dict[tuple[str, int, int], int] | None) -> None:
    now_ms = time.time_ns() // 1_000_000
    items = []
    for group in found:
        for each in group.partitions:
            item = {"group": group.group_id, **lag_item(each)}
            if ages is not None:
                since = ages.get((each.topic, each.partition, next_unread(each)))
                item["unread_since"] = moment(since)
                item["age_ms"] = None if since is None else max(0, now_ms - since)
            items.append(item)
    for group in found:
        _say_problems(group)
    columns: list[Column | str] = ["group", *_LAG]
    if ages is not None:
        columns += ["unread_since", Column("age_ms", title="age", text=duration_text)]
    columns.append(_LIMITED)
    out.items("groups.lag/1", columns, items, empty="nothing is committed")
    if out.format is Format.TABLE:
        _say_where_leases_are(*found)


def _unread_since(kafka: Settings, found: Sequence[GroupLag]) -> dict[tuple[str, int, int], int]:
    """Return `unread_since` of these groups, with progress where a person watches."""
    behind = lagging(found)
    with ProgressLine("read a record of partitions", total=len(behind)) as progress:
        return unread_since(behind, cluster_opener(kafka), on_read=progress.advance)
