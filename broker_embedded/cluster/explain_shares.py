"""Says in words why a record is not delivered to a share group. Pure, as `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from broker_embedded.cluster.facts import PartitionFacts, ShareFacts, ShareRunFacts


def explain_shares(state: PartitionFacts, *, offset: int | None = None, group: str | None = None) -> Iterator[str]:
    """Yield the state of each share group on the partition, or of `group` alone; with `offset`, of that record."""
    found = [each for each in state.shares if group in (None, each.group)]
    if group is not None and not found:
        yield (
            f"Share group {group} has not fetched from {state.name} since broker {state.leader} leads it: a member"
            " leases records with its first ShareFetch."
        )
    for share in found:
        yield _how_it_stands(share)
        if offset is not None:
            yield _record(state, share, offset)
        else:
            yield from _what_holds_it_up(state, share)


def _how_it_stands(share: ShareFacts) -> str:
    counts = ", ".join(
        f"{records} {state}" for state in ("acquired", "available", "archiving") if (records := share.records(state))
    )
    settled = share.records("acknowledged", "archived")
    return (
        f"Share group {share.group}: all records before {share.start_offset} are settled, and none from"
        f" {share.end_offset} on was delivered; {share.in_flight} in flight ({counts or 'none waits'},"
        f" {settled} settled out of order), {_members(share.sessions)}."
    )


def _what_holds_it_up(state: PartitionFacts, share: ShareFacts) -> Iterator[str]:
    first = next(iter(share.runs), None)
    if first is not None and first.state == "acquired":
        yield f"Record {first.first} holds the start offset: {_lease(share, first)}."
    if share.in_flight >= share.max_locks:
        yield _is_full(share)
    elif share.sessions == 0 and state.led is not None and share.end_offset < state.led.high_watermark:
        yield f"Nothing is delivered to share group {share.group}: no member has a session with broker {state.leader}."


def _record(state: PartitionFacts, share: ShareFacts, offset: int) -> str:
    if offset < share.start_offset:
        return f"Record {offset} is settled: it lies before the start offset {share.start_offset}."
    run = next((run for run in share.runs if run.first <= offset <= run.last), None)
    if run is not None:
        return f"Record {offset} {_standing(share, run)}."
    led = state.led
    if led is not None and offset >= led.log_end_offset:
        return f"Record {offset} does not exist: the log ends at {led.log_end_offset}."
    if led is not None and offset >= led.high_watermark:
        return f"Record {offset} is not delivered yet: the high watermark is {led.high_watermark}."
    if share.in_flight >= share.max_locks:
        return f"Record {offset} was not delivered yet. {_is_full(share)}"
    if share.sessions == 0:
        return f"Record {offset} was not delivered yet: no member has a session with broker {state.leader}."
    return f"Record {offset} was not delivered yet: the members fetch {share.end_offset} first."


def _standing(share: ShareFacts, run: ShareRunFacts) -> str:
    match run.state:
        case "acquired":
            return f"is delivered: {_lease(share, run)}"
        case "available":
            again = f" It was delivered {run.delivery_count} times of {share.delivery_limit}" * (run.delivery_count > 0)
            return f"is available: the next fetch of a member leases it.{again}".rstrip(".")
        case "acknowledged":
            return "is settled: a member accepted it"
        case "archiving":
            return f"is given up after {run.delivery_count} deliveries, and its dead letter is being written"
        case _:
            return (
                f"is settled without a member's acceptance after {run.delivery_count} deliveries: rejected, given up at"
                f" the limit of {share.delivery_limit}, or not a record that is delivered"
            )


def _lease(share: ShareFacts, run: ShareRunFacts) -> str:
    return (
        f"member {run.member_id} has its lease for {run.ends_in_ms} ms unless it renews, and this is delivery"
        f" {run.delivery_count} of {share.delivery_limit}"
    )


def _is_full(share: ShareFacts) -> str:
    return (
        f"Nothing new is delivered to share group {share.group}: {share.in_flight} records are in flight from"
        f" {share.start_offset} on, and share.partition.max.record.locks is {share.max_locks}. It ends when record"
        f" {share.start_offset} is settled."
    )


def _members(sessions: int) -> str:
    return "1 member has a session" if sessions == 1 else f"{sessions} members have a session"
