"""`ottla outbox`: relay the records of an outbox; see what waits in it, and decide about what was refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.shared.cluster_options import check_reachable, client_settings, reaches_a_cluster, takes_settings_of
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Output, prints, say, warn
from ottla.cli.shared.parameter_types import Seconds
from ottla.cli.shared.serving import stopped_by_signals
from ottla.cli.shared.stores import names_a_store, reaching, shown_store, store_of
from ottla.cli.shared.visible import visible
from ottla.config import Settings
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.outbox import Outbox
    from ottla.stores.outbox_sessions import OutboxSession

_COLUMNS = ("id", "topic", "key", "bytes", "message_id", "age_s", "reason")
_RESULTS = ("id", "result", "topic", "key", "reason")


@click.group(cls=CommandGroup)
def outbox() -> None:
    """Relay and inspect records that services wrote into their database for Kafka.

    \b
    Examples:
      ottla outbox relay --store postgresql://db/shop
      ottla outbox show --store shop.db
      ottla outbox retry 4711 --store shop.db
    """


@outbox.command()
@names_a_store
@reaches_a_cluster
@takes_settings_of("producer")
@click.option(
    "--interval", type=Seconds(0), default=0.1, show_default=True, help="Seconds between polls while no row waits."
)
@click.option("--batch-rows", type=click.IntRange(1), default=500, show_default=True, help="Most rows at a time.")
@click.option(
    "--lease",
    type=Seconds(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds until another relay replaces a failed one.",
)
@click.option("--create-tables", is_flag=True, help="Create missing tables.")
def relay(kafka: Settings, store: str, interval: float, batch_rows: int, lease: float, create_tables: bool) -> None:
    """Write waiting rows to Kafka until SIGTERM or Ctrl-C. Any number may run: one is active, the others stand by.

    \b
    Example:
      ottla outbox relay --store postgresql://db/shop
    """
    from ottla.sync.serve.outbox_relay import OutboxRelay

    check_reachable(kafka)
    box = _outbox(store)
    if create_tables:
        with reaching(box.store):
            box.create_tables()
    with _session(box):
        pass  # the tables are there
    made = OutboxRelay(
        box,
        kafka["bootstrap.servers"],
        settings=client_settings(kafka),
        interval_s=interval,
        batch_rows=batch_rows,
        lease_s=lease,
    )

    with stopped_by_signals(made.stop):
        say(f"ottla: relaying {shown_store(store)}; Ctrl-C or SIGTERM stops it")
        made.run()


@outbox.command()
@names_a_store
@click.option("--all", "everything", is_flag=True, help="Also rows that wait, not only those that were refused.")
@click.option("--most", type=click.IntRange(1), default=100, show_default=True, help="Show at most this many rows.")
@prints
def show(store: str, everything: bool, most: int, out: Output) -> None:
    """Show refused rows, and how many rows wait.

    \b
    Examples:
      ottla outbox show --store postgresql://db/shop
      ottla outbox show --store shop.db --all --format json
    """
    with _session(_outbox(store)) as session:
        lag, owner = session.lag(), session.relay()
        rows = session.show(most_rows=most, all_rows=everything)
    works = owner[0] if owner is not None and owner[1] > 0 else None
    out.items(
        "outbox.show/1",
        _COLUMNS,
        map(_item, rows),
        empty="no rows" if everything else "no row was refused",
        waiting=lag.waiting,
        oldest_s=round(lag.oldest_ms / 1_000, 1),
        refused=lag.parked,
        relay=works,
    )
    say(
        f"{lag.waiting:,} rows wait, the oldest for {lag.oldest_ms / 1_000:.1f} s; {lag.parked:,} refused; "
        + (f"relay {works}" if works else "no relay works")
    )


@outbox.command()
@click.argument("ids", type=int, nargs=-1, required=True)
@names_a_store
@prints
@changes
def retry(ids: tuple[int, ...], store: str, out: Output, consent: Consent) -> None:
    """Retry refused rows, after you have fixed the cause.

    \b
    Example:
      ottla outbox retry 4711 4712 --store shop.db
    """
    with _session(_outbox(store)) as session:
        found = _refused(session, ids)
        done = session.unpark(ids) if consent.agree(f"Try {_rows(found)} again?") else None
    _print_outcome(out, "outbox.retry/1", ids, found, done, "tried again")


@outbox.command()
@click.argument("ids", type=int, nargs=-1, required=True)
@names_a_store
@prints
@changes
def drop(ids: tuple[int, ...], store: str, out: Output, consent: Consent) -> None:
    """Delete refused rows for good. Later rows of their keys continue without them.

    \b
    Example:
      ottla outbox drop 4711 --store shop.db
    """
    with _session(_outbox(store)) as session:
        found = _refused(session, ids)
        done = session.drop(ids) if consent.agree(f"Delete {_rows(found)} for good?") else None
    _print_outcome(out, "outbox.drop/1", ids, found, done, "deleted")


def _item(row: Sequence[Any]) -> dict[str, Any]:
    number, topic, partition, key, size, message_id, age_ms, reason = row
    return {
        "id": number,
        "topic": topic,
        "partition": partition,
        "key": None if key is None else bytes(key).decode("utf-8", "backslashreplace"),
        "bytes": size,
        "message_id": message_id,
        "age_s": round(age_ms / 1_000, 1),
        "reason": reason,
    }


def _refused(session: OutboxSession, ids: tuple[int, ...]) -> dict[int, dict[str, Any]]:
    """Return the refused rows among `ids`, before the confirmation. Raises `InputError` if there is none."""
    found = {row[0]: _item(row) for row in session.refused(ids)}
    if not found:
        raise InputError(_no_row(set(ids)))
    for row in found.values():
        key = "no key" if row["key"] is None else f"key {row['key']}"
        say(visible(f"row {row['id']}: {row['topic']}, {key}: {row['reason']}"))
    return found


def _print_outcome(
    out: Output,
    schema: str,
    asked: tuple[int, ...],
    found: Mapping[int, Mapping[str, Any]],
    done: Sequence[int] | None,
    what: str,
) -> None:
    """Print which rows were changed. `done` is None for a dry run. A row that was `found` and not changed was taken by
    another process meanwhile."""
    changed, result = (found, f"would be {what}") if done is None else (done, what)
    missing = set(asked) - set(changed)
    items = [
        {
            "id": number,
            "topic": found[number]["topic"] if number in found else None,
            "key": found[number]["key"] if number in found else None,
            "reason": found[number]["reason"] if number in found else None,
            "result": "not found" if number in missing else result,
        }
        for number in sorted(set(asked))
    ]
    out.items(schema, _RESULTS, items)
    if missing:
        warn(_no_row(missing))
        fail()


def _rows(found: Collection[int]) -> str:
    return "1 row" if len(found) == 1 else f"{len(found)} rows"


def _no_row(missing: Collection[int]) -> str:
    return f"no refused row has the id {', '.join(map(str, sorted(missing)))}"


def _outbox(store: str) -> Outbox:
    from ottla.outbox import Outbox

    return Outbox(store_of(store))


@contextmanager
def _session(box: Outbox) -> Iterator[OutboxSession]:
    with reaching(box.store):
        session = box.session()
        try:
            yield session
        finally:
            session.close()
