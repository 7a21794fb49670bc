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


_EXISTS: Final = {
    "ottla_inbox": Statement("select 1 from ottla_inbox where 1 = 0"),
    "ottla_offsets": Statement("select 1 from ottla_offsets where 1 = 0"),
}

POSTGRESQL: Final = Dialect(
    name="postgresql",
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
    exists=_EXISTS,
    # Sorted, so that two transactions with the same ids wait for each other instead of locking each other out.
    mark=Statement(
        "insert into ottla_inbox as i (consumer, message_id) "
        "select :consumer, id from unnest(cast(:ids as text[])) as id order by id "
        "on conflict (consumer, message_id) do update set owner = null, free_at = null, seen_at = now() "
        "where i.owner is not null and i.free_at <= now() returning message_id"
    ),
    unmark=Statement(
        "delete from ottla_inbox where consumer = :consumer and message_id = any(cast(:ids as text[])) returning 1"
    ),
    claim=Statement(
        "insert into ottla_inbox as i (consumer, message_id, owner, free_at) "
        "select :consumer, id, :owner, now() + :lease_ms * interval '1 millisecond' "
        "from unnest(cast(:ids as text[])) as id order by id "
        "on conflict (consumer, message_id) do update "
        "set owner = excluded.owner, free_at = excluded.free_at, seen_at = now() "
        "where i.owner is not null and (i.free_at <= now() or i.owner = excluded.owner) returning message_id"
    ),
    look=Statement(
        "select message_id, case when owner is not null then "
        "greatest(0, cast(extract(epoch from free_at - now()) * 1000 as bigint)) end "
        "from ottla_inbox where consumer = :consumer and message_id = any(cast(:ids as text[]))"
    ),
    renew=Statement(
        "update ottla_inbox set free_at = now() + :lease_ms * interval '1 millisecond' "
        "where consumer = :consumer and message_id = any(cast(:ids as text[])) and owner = :owner returning 1"
    ),
    finish=Statement(
        "insert into ottla_inbox (consumer, message_id) "
        "select :consumer, id from unnest(cast(:ids as text[])) as id order by id "
        "on conflict (consumer, message_id) do update set owner = null, free_at = null, seen_at = now() returning 1"
    ),
    release=Statement(
        "delete from ottla_inbox where consumer = :consumer and message_id = any(cast(:ids as text[])) "
        "and owner = :owner returning 1"
    ),
    # One member cleans at a time: the others find the lock taken, and nothing to do.
    clean=Statement(
        "with old as (select ctid from ottla_inbox where consumer = :consumer "
        "and seen_at < now() - :window_ms * interval '1 millisecond' and (owner is null or free_at < now()) "
        "and pg_try_advisory_xact_lock(20190119, hashtext(:consumer)) limit 10000) "
        "delete from ottla_inbox where ctid = any(array(select ctid from old)) returning 1"
    ),
    claim_offsets=Statement(
        "insert into ottla_offsets as o (consumer, topic, partition, epoch, member) "
        "select :consumer, topic, part, 1, :member "
        "from unnest(cast(:topics as text[]), cast(:partitions as int[])) as named(topic, part) order by topic, part "
        "on conflict (consumer, topic, partition) "
        "do update set epoch = o.epoch + 1, member = excluded.member, updated_at = now() "
        "returning topic, partition, next_offset, epoch"
    ),
    # A process that stops between this and its commit must not hold the row: the server ends its transaction.
    save_offset=Statement(
        "with bounded as (select set_config('idle_in_transaction_session_timeout', '1000', true)), "
        "saved as (update ottla_offsets set next_offset = :next_offset, updated_at = now() where consumer = :consumer "
        "and topic = :topic and partition = :partition and epoch = :epoch returning 1) "
        "select count(*) from bounded cross join saved"
    ),
    pass_offset=Statement(
        "update ottla_offsets set next_offset = :next_offset, updated_at = now() where consumer = :consumer and "
        "topic = :topic and partition = :partition and epoch = :epoch and coalesce(next_offset, -1) < :next_offset "
        "returning 1"
    ),
    read_offset=Statement(
        "select next_offset, epoch from ottla_offsets "
        "where consumer = :consumer and topic = :topic and partition = :partition"
    ),
    list_offsets=Statement(
        "select topic, partition, next_offset, epoch, member, cast(updated_at as text) from ottla_offsets "
        "where consumer = :consumer order by topic, partition"
    ),
    reset_offset=Statement(
        "update ottla_offsets set next_offset = :next_offset, epoch = epoch + 1, updated_at = now() "
        "where consumer = :consumer and topic = :topic and partition = :partition returning epoch"
    ),
)

_IDS: Final = "in (select value from json_each(:ids))"

SQLITE: Final = Dialect(
    name="sqlite",
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
    exists=_EXISTS,
    mark=Statement(
        "insert into ottla_inbox as i (consumer, message_id, seen_at) "
        "select :consumer, value, :now_ms from json_each(:ids) where true "
        "on conflict (consumer, message_id) do update set owner = null, free_at = null, seen_at = :now_ms "
        "where i.owner is not null and i.free_at <= :now_ms returning message_id"
    ),
    unmark=Statement(f"delete from ottla_inbox where consumer = :consumer and message_id {_IDS} returning 1"),
    claim=Statement(
        "insert into ottla_inbox as i (consumer, message_id, seen_at, owner, free_at) "
        "select :consumer, value, :now_ms, :owner, :now_ms + :lease_ms from json_each(:ids) where true "
        "on conflict (consumer, message_id) do update "
        "set owner = excluded.owner, free_at = excluded.free_at, seen_at = :now_ms "
        "where i.owner is not null and (i.free_at <= :now_ms or i.owner = excluded.owner) returning message_id"
    ),
    look=Statement(
        "select message_id, case when owner is not null then max(0, free_at - :now_ms) end "
        f"from ottla_inbox where consumer = :consumer and message_id {_IDS}"
    ),
    renew=Statement(
        "update ottla_inbox set free_at = :now_ms + :lease_ms "
        f"where consumer = :consumer and message_id {_IDS} and owner = :owner returning 1"
    ),
    finish=Statement(
        "insert into ottla_inbox (consumer, message_id, seen_at) "
        "select :consumer, value, :now_ms from json_each(:ids) where true "
        "on conflict (consumer, message_id) do update set owner = null, free_at = null, seen_at = :now_ms returning 1"
    ),
    release=Statement(
        f"delete from ottla_inbox where consumer = :consumer and message_id {_IDS} and owner = :owner returning 1"
    ),
    clean=Statement(
        "delete from ottla_inbox where consumer = :consumer and message_id in (select message_id from ottla_inbox "
        "where consumer = :consumer and seen_at < :now_ms - :window_ms and (owner is null or free_at < :now_ms) "
        "limit 10000) returning 1"
    ),
    claim_offsets=Statement(
        "insert into ottla_offsets as o (consumer, topic, partition, epoch, member) "
        "select :consumer, t.value, p.value, 1, :member from json_each(:topics) as t "
        "join json_each(:partitions) as p on p.key = t.key where true "
        "on conflict (consumer, topic, partition) "
        "do update set epoch = o.epoch + 1, member = excluded.member, updated_at = current_timestamp "
        "returning topic, partition, next_offset, epoch"
    ),
    save_offset=Statement(
        "update ottla_offsets set next_offset = :next_offset, updated_at = current_timestamp "
        "where consumer = :consumer and topic = :topic and partition = :partition and epoch = :epoch returning 1"
    ),
    pass_offset=Statement(
        "update ottla_offsets set next_offset = :next_offset, updated_at = current_timestamp "
        "where consumer = :consumer and topic = :topic and partition = :partition and epoch = :epoch "
        "and coalesce(next_offset, -1) < :next_offset returning 1"
    ),
    read_offset=POSTGRESQL.read_offset,
    list_offsets=POSTGRESQL.list_offsets,
    reset_offset=Statement(
        "update ottla_offsets set next_offset = :next_offset, epoch = epoch + 1, updated_at = current_timestamp "
        "where consumer = :consumer and topic = :topic and partition = :partition returning epoch"
    ),
)

DIALECTS: Final[Mapping[str, Dialect]] = {dialect.name: dialect for dialect in (POSTGRESQL, SQLITE)}
