"""The tables and statements of an outbox. Public: your migrations, triggers and queries may rely on them.

`ottla_outbox` has one row per record that waits to be relayed; a relayed row is deleted. `id` gives the order.
`headers` is a JSON list of `[name, value]`: the value is text, null, or `{"base64": "..."}` for bytes that are no text.
A row with `parked_at` was refused for the `reason`, and the rows behind it with the same topic and key wait for it.
Rows may also be written by hand or by a trigger: only the topic has no default.

`ottla_outbox_relay` has one row: which relay works, and until when it need not say so again.

On PostgreSQL `add` takes an advisory lock for the record's key before the row gets its id, and holds it until the
transaction ends. So the rows of a key have ids in the order of their commits, and a row that becomes visible has none
of its key before it that is still to come. Keys share 2,048 locks, so a transaction of any size fits into the server's
lock table. SQLite has one writer at a time, which comes to the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final

from ottla.stores.sql_text import DIALECTS, Statement
from ottla_wire.facts import fact

LOCK_CLASS: Final = 20_190_120
"""First number of PostgreSQL's advisory locks per key; the second is `lock_of`."""

LOCKS: Final = 2_048


def lock_of(topic: str, key: bytes | None) -> int | None:
    """Return the lock that serialises transactions with records of this key; None without a key."""
    return None if key is None else zlib.crc32(topic.encode() + b"\0" + key) % LOCKS


@fact
class OutboxDialect:
    """The statements in one database's SQL."""

    schema: str
    exists: Statement
    add: Statement
    claim: Statement
    release: Statement
    read: Statement
    delete: Statement
    park: Statement
    lag: Statement
    show: Statement
    refused: Statement
    unpark: Statement
    drop: Statement
    relay: Statement
    missing_rights: Statement | None
    """Returns (right, table) that a relay needs and this role lacks. None for a database without roles."""

    as_list: Callable[[list[object]], object]


_COLUMNS: Final = "topic, partition, key, value, headers, timestamp_ms, message_id"

_LAG_ROWS: Final = 100_000
"""Rows are counted up to this number: a full count would be too slow."""


def _dialect(
    name: str,
    *,
    schema: str,
    add: str,
    now: str,
    lease_end: str,
    lease_left_ms: str,
    age_ms: str,
    length: str,
    in_ids: str,
    in_skipped: str,
    missing_rights: str | None = None,
) -> OutboxDialect:
    """Return the statements in one database's words."""
    shown = (
        f"select id, topic, partition, key, {length}(value), message_id, {age_ms}, reason from ottla_outbox "
        "where {} order by id"
    )
    return OutboxDialect(
        schema=schema,
        exists=Statement("select 1 from ottla_outbox cross join ottla_outbox_relay where 1 = 0"),
        add=Statement(add),
        claim=Statement(
            f"insert into ottla_outbox_relay as r (name, owner, free_at) values ('relay', :owner, {lease_end}) "
            "on conflict (name) do update set owner = excluded.owner, free_at = excluded.free_at, "
            f"since = case when r.owner = excluded.owner then r.since else {now} end "
            f"where r.owner = excluded.owner or r.free_at <= {now} returning 1"
        ),
        release=Statement(f"update ottla_outbox_relay set free_at = {now} where owner = :owner returning 1"),
        # The size of a batch is bounded before its values are read: `before` is how many bytes the rows ahead have.
        #
        # Rows are to be looked at in the order of their ids until there are enough. A planner that expects few of them
        # to be left over reads and sorts them all instead, and PostgreSQL expects that of `is null` and of `not exists`
        # wherever its statistics are of an emptier table, as an outbox usually is: with 200,000 rows a batch took 0.5
        # to 2.5 s. Of a `case` it expects half.
        read=Statement(
            f"with head as (select id, coalesce({length}(key), 0) + coalesce({length}(value), 0) + {length}(headers) "
            "as size from ottla_outbox o where case when parked_at is null then true else false end "
            f"and not (topic {in_skipped}) "
            "and case when exists (select 1 from ottla_outbox p where p.parked_at is not null and p.topic = o.topic "
            "and p.key = o.key and p.id < o.id) then false else true end "
            "order by id limit :most_rows), "
            "sized as (select id, sum(size) over (order by id) - size as before from head) "
            "select o.id, o.topic, o.partition, o.key, o.value, o.headers, o.timestamp_ms, o.message_id "
            "from ottla_outbox o join sized on sized.id = o.id where before < :most_bytes order by o.id"
        ),
        delete=Statement(f"delete from ottla_outbox where id {in_ids} returning 1"),
        park=Statement(f"update ottla_outbox set parked_at = {now}, reason = :reason where id = :id returning 1"),
        lag=Statement(
            "select (select count(*) from (select 1 from ottla_outbox where parked_at is null limit "
            f"{_LAG_ROWS}) as waiting), "
            f"(select {age_ms} from ottla_outbox where parked_at is null order by id limit 1), "
            "(select count(*) from ottla_outbox where parked_at is not null), "
            "(select reason from ottla_outbox where parked_at is not null order by id limit 1)"
        ),
        show=Statement(f"{shown.format('(parked_at is not null or :all = 1)')} limit :most_rows"),
        refused=Statement(shown.format(f"id {in_ids} and parked_at is not null")),
        unpark=Statement(
            "update ottla_outbox set parked_at = null, reason = null "
            f"where id {in_ids} and parked_at is not null returning id"
        ),
        drop=Statement(f"delete from ottla_outbox where id {in_ids} and parked_at is not null returning id"),
        relay=Statement(f"select owner, {lease_left_ms} from ottla_outbox_relay"),
        missing_rights=None if missing_rights is None else Statement(missing_rights),
        as_list=DIALECTS[name].as_list,
    )


POSTGRESQL: Final = _dialect(
    "postgresql",
    schema="""\
create table if not exists ottla_outbox (
  id bigint generated always as identity primary key,
  topic text not null, partition int, key bytea, value bytea, headers text not null default '[]',
  timestamp_ms bigint not null default cast(extract(epoch from clock_timestamp()) * 1000 as bigint),
  message_id text not null default cast(gen_random_uuid() as text),
  added_at timestamptz not null default now(), parked_at timestamptz, reason text)
  with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index if not exists ottla_outbox_parked on ottla_outbox (topic, key) where parked_at is not null;
create table if not exists ottla_outbox_relay (
  name text primary key, owner text not null, since timestamptz not null default now(), free_at timestamptz not null);
""",
    add=(
        f"with held as (select pg_advisory_xact_lock({LOCK_CLASS}, cast(:lock as int))) "
        f"insert into ottla_outbox ({_COLUMNS}) select cast(:topic as text), cast(:partition as int), "
        "cast(:key as bytea), cast(:value as bytea), cast(:headers as text), cast(:timestamp_ms as bigint), "
        "cast(:message_id as text) from held"
    ),
    now="now()",
    lease_end="now() + :lease_ms * interval '1 millisecond'",
    lease_left_ms="cast(extract(epoch from free_at - clock_timestamp()) * 1000 as bigint)",
    age_ms="greatest(0, cast(extract(epoch from clock_timestamp() - added_at) * 1000 as bigint))",
    length="octet_length",
    in_ids="= any(cast(:ids as bigint[]))",
    in_skipped="= any(cast(:skipped as text[]))",
    missing_rights=(
        "select needed, name from (values ('update', 'ottla_outbox'), ('delete', 'ottla_outbox'), "
        "('insert', 'ottla_outbox_relay'), ('update', 'ottla_outbox_relay')) as wanted (needed, name) "
        "where not case when needed = 'delete' then has_table_privilege(name, needed) "
        "else has_any_column_privilege(name, needed) end"
    ),
)

_NOW_MS: Final = "cast((julianday('now') - 2440587.5) * 86400000 as integer)"

SQLITE: Final = _dialect(
    "sqlite",
    schema=f"""\
create table if not exists ottla_outbox (
  id integer primary key autoincrement,
  topic text not null, partition integer, key blob, value blob, headers text not null default '[]',
  timestamp_ms integer not null default ({_NOW_MS}),
  message_id text not null default (lower(hex(randomblob(16)))),
  added_at integer not null default ({_NOW_MS}), parked_at integer, reason text);
create index if not exists ottla_outbox_parked on ottla_outbox (topic, key) where parked_at is not null;
create table if not exists ottla_outbox_relay (
  name text primary key, owner text not null, since integer not null default ({_NOW_MS}), free_at integer not null);
""",
    add=(
        f"insert into ottla_outbox ({_COLUMNS}) "
        "values (:topic, :partition, :key, :value, :headers, :timestamp_ms, :message_id)"
    ),
    now=_NOW_MS,
    lease_end=f"{_NOW_MS} + :lease_ms",
    lease_left_ms=f"free_at - {_NOW_MS}",
    age_ms=f"max(0, {_NOW_MS} - added_at)",
    length="length",
    in_ids="in (select value from json_each(:ids))",
    in_skipped="in (select value from json_each(:skipped))",
)

OUTBOX_DIALECTS: Final[Mapping[str, OutboxDialect]] = {"postgresql": POSTGRESQL, "sqlite": SQLITE}
