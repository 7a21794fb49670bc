"""The tables and statements of SQL stores. Public: your migrations and your queries may rely on them.

`ottla_offsets` has one row per consumer, topic and partition. `next_offset` is where the partition goes on (null:
nothing was saved yet), `epoch` the fencing token: each claim adds one, and a save with an older one changes no row.

`ottla_inbox` has one row per message. `owner` is null for a message that is done; else its claim holds until
`free_at`.

Parameters are written `:name`. PostgreSQL takes times from its own clock, SQLite from the store's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from ottla_wire.facts import fact

_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")


def array_literal(values: list[object]) -> str:
    """Return a list as text that PostgreSQL casts to an array. No value may be None. A driver would check each value;
    this checks all at once."""
    if not values:
        return "{}"
    texts = list(map(str, values))
    joined = '","'.join(texts)
    if "\\" in joined or joined.count('"') != 2 * (len(texts) - 1):
        joined = '","'.join(text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return f'{{"{joined}"}}'


class Statement:
    """A statement and the names of its parameters."""

    __slots__ = ("names", "percent", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.names = frozenset(_PARAMETER.findall(text))
        self.percent = _PARAMETER.sub(r"%(\1)s", text)
        """Return the statement with parameters in psycopg's style."""


@fact
class Dialect:
    """The statements in one database's SQL."""

    name: str
    schema: str
    begin: str
    as_list: Callable[[list[object]], object]
    """Converts a list of values into one parameter."""
    exists: Mapping[str, Statement]
    """Per table a statement that fails if the table is missing."""
    mark: Statement
    unmark: Statement
    claim: Statement
    look: Statement
    renew: Statement
    finish: Statement
    release: Statement
    clean: Statement
    claim_offsets: Statement
    save_offset: Statement
    pass_offset: Statement
    read_offset: Statement
    list_offsets: Statement
    reset_offset: Statement


def _dialect(
    name: str,
    *,
    schema: str,
    begin: str,
    as_list: Callable[[list[object]], object],
    now: str,
    changed_at: str,
    lease_end: str,
    lease_left_ms: str,
    each_id: str,
    ids: str,
    in_ids: str,
    named: str,
    save_offset: str,
    clean: str,
) -> Dialect:
    """Return the statements in one database's words."""
    adds = (
        f"insert into ottla_inbox as i (consumer, message_id, seen_at) select :consumer, {each_id}, {now} from {ids} "
        f"on conflict (consumer, message_id) do update set owner = null, free_at = null, seen_at = {now}"
    )
    of_ids = f"where consumer = :consumer and message_id {in_ids}"
    of_partition = "where consumer = :consumer and topic = :topic and partition = :partition"
    return Dialect(
        name=name,
        schema=schema,
        begin=begin,
        as_list=as_list,
        exists={
            "ottla_inbox": Statement("select 1 from ottla_inbox where 1 = 0"),
            "ottla_offsets": Statement("select 1 from ottla_offsets where 1 = 0"),
        },
        mark=Statement(f"{adds} where i.owner is not null and i.free_at <= {now} returning message_id"),
        unmark=Statement(f"delete from ottla_inbox {of_ids} returning 1"),
        claim=Statement(
            "insert into ottla_inbox as i (consumer, message_id, seen_at, owner, free_at) "
            f"select :consumer, {each_id}, {now}, :owner, {lease_end} from {ids} "
            "on conflict (consumer, message_id) do update "
            f"set owner = excluded.owner, free_at = excluded.free_at, seen_at = {now} "
            f"where i.owner is not null and (i.free_at <= {now} or i.owner = excluded.owner) returning message_id"
        ),
        look=Statement(
            f"select message_id, case when owner is not null then {lease_left_ms} end from ottla_inbox {of_ids}"
        ),
        renew=Statement(f"update ottla_inbox set free_at = {lease_end} {of_ids} and owner = :owner returning 1"),
        finish=Statement(f"{adds} returning 1"),
        release=Statement(f"delete from ottla_inbox {of_ids} and owner = :owner returning 1"),
        clean=Statement(clean),
        claim_offsets=Statement(
            "insert into ottla_offsets as o (consumer, topic, partition, epoch, member) "
            f"select :consumer, {named} on conflict (consumer, topic, partition) "
            f"do update set epoch = o.epoch + 1, member = excluded.member, updated_at = {changed_at} "
            "returning topic, partition, next_offset, epoch"
        ),
        save_offset=Statement(
            save_offset.format(
                f"update ottla_offsets set next_offset = :next_offset, updated_at = {changed_at} "
                f"{of_partition} and epoch = :epoch returning 1"
            )
        ),
        pass_offset=Statement(
            f"update ottla_offsets set next_offset = :next_offset, updated_at = {changed_at} "
            f"{of_partition} and epoch = :epoch and coalesce(next_offset, -1) < :next_offset returning 1"
        ),
        read_offset=Statement(f"select next_offset, epoch from ottla_offsets {of_partition}"),
        list_offsets=Statement(
            "select topic, partition, next_offset, epoch, member, cast(updated_at as text) from ottla_offsets "
            "where consumer = :consumer order by topic, partition"
        ),
        reset_offset=Statement(
            f"update ottla_offsets set next_offset = :next_offset, epoch = epoch + 1, updated_at = {changed_at} "
            f"{of_partition} returning epoch"
        ),
    )


POSTGRESQL: Final = _dialect(
    "postgresql",
    schema="""\
create table if not exists ottla_offsets (
  consumer text not null, topic text not null, partition int not null, next_offset bigint,
  epoch bigint not null, member text not null, updated_at timestamptz not null default now(),
  primary key (consumer, topic, partition));
create table if not exists ottla_inbox (
  consumer text not null, message_id text not null, seen_at timestamptz not null default now(),
  owner text, free_at timestamptz, primary key (consumer, message_id));
create index if not exists ottla_inbox_seen_at on ottla_inbox using brin (seen_at);
""",
    begin="begin",
    as_list=lambda values: values,
    now="now()",
    changed_at="now()",
    lease_end="now() + :lease_ms * interval '1 millisecond'",
    lease_left_ms="greatest(0, cast(extract(epoch from free_at - now()) * 1000 as bigint))",
    each_id="id",
    # Sorted, so that two transactions with the same ids wait for each other instead of locking each other out.
    ids="unnest(cast(:ids as text[])) as id order by id",
    in_ids="= any(cast(:ids as text[]))",
    named=(
        "topic, part, 1, :member "
        "from unnest(cast(:topics as text[]), cast(:partitions as int[])) as named(topic, part) order by topic, part"
    ),
    # A process that stops between this and its commit must not hold the row: the server ends its transaction.
    save_offset=(
        "with bounded as (select set_config('idle_in_transaction_session_timeout', '1000', true)), "
        "saved as ({}) select count(*) from bounded cross join saved"
    ),
    # One member cleans at a time: the others find the lock taken, and nothing to do.
    clean=(
        "with old as (select ctid from ottla_inbox where consumer = :consumer "
        "and seen_at < now() - :window_ms * interval '1 millisecond' and (owner is null or free_at < now()) "
        "and pg_try_advisory_xact_lock(20190119, hashtext(:consumer)) limit 10000) "
        "delete from ottla_inbox where ctid = any(array(select ctid from old)) returning 1"
    ),
)

SQLITE: Final = _dialect(
    "sqlite",
    schema="""\
create table if not exists ottla_offsets (
  consumer text not null, topic text not null, partition integer not null, next_offset integer,
  epoch integer not null, member text not null, updated_at text not null default current_timestamp,
  primary key (consumer, topic, partition)) without rowid;
create table if not exists ottla_inbox (
  consumer text not null, message_id text not null, seen_at integer not null,
  owner text, free_at integer, primary key (consumer, message_id)) without rowid;
create index if not exists ottla_inbox_seen_at on ottla_inbox (consumer, seen_at);
""",
    begin="begin immediate",
    as_list=json.dumps,
    now=":now_ms",
    changed_at="current_timestamp",
    lease_end=":now_ms + :lease_ms",
    lease_left_ms="max(0, free_at - :now_ms)",
    each_id="value",
    ids="json_each(:ids) where true",
    in_ids="in (select value from json_each(:ids))",
    named=(
        "t.value, p.value, 1, :member from json_each(:topics) as t "
        "join json_each(:partitions) as p on p.key = t.key where true"
    ),
    save_offset="{}",
    clean=(
        "delete from ottla_inbox where consumer = :consumer and message_id in (select message_id from ottla_inbox "
        "where consumer = :consumer and seen_at < :now_ms - :window_ms and (owner is null or free_at < :now_ms) "
        "limit 10000) returning 1"
    ),
)

DIALECTS: Final[Mapping[str, Dialect]] = {dialect.name: dialect for dialect in (POSTGRESQL, SQLITE)}
