"""Fetches of the metadata log, on both sides: a follower's requests and a leader's responses."""

from __future__ import annotations

from broker_embedded.controller.raft import elections, log_view
from broker_embedded.controller.raft.answers import answer_fetch
from broker_embedded.controller.raft.effects import AppendFetched, CommitEntries, Diverged, PeerReply, Send, TruncateTo
from broker_embedded.controller.raft.log_view import EpochEnd
from broker_embedded.controller.raft.member import Member
from broker_embedded.controller.raft.messages import NO_LEADER, FetchAnswer, FetchRequest, FetchResponse
from broker_embedded.controller.raft.roles import RaftRole
from ottla_wire.protocol import ErrorCode

# --- as the leader


def fetch_answer(member: Member, fetch: FetchRequest) -> FetchAnswer:
    """Return the response to `fetch` now. Changes nothing, also for a fetch that has waited."""
    return answer_fetch(
        fetch,
        log=member.log,
        epoch=member.epoch,
        leader_id=member.leader_id,
        is_leader=member.progress is not None,
        high_watermark=member.high_watermark,
    )


def on_fetch_request(member: Member, fetch: FetchRequest) -> None:
    answer = fetch_answer(member, fetch)
    is_replica = 0 <= fetch.replica_id != member.node_id
    if member.progress is not None and answer.may_have_batches and is_replica:
        member.progress.fetched(
            fetch.replica_id, fetch.fetch_offset, leader_end=member.log.end_offset, now_ms=member.now_ms
        )
        _advance_high_watermark(member)
        answer = fetch_answer(member, fetch)
    member.effects.append(PeerReply(response=answer))


def _advance_high_watermark(member: Member) -> None:
    """Advance the high watermark once a batch of this epoch is replicated: earlier batches could still be replaced
    (figure 8).
    """
    assert member.progress is not None
    majority_end = member.progress.majority_end(member.log.end_offset)
    if majority_end > member.progress.epoch_start_offset:
        _commit(member, majority_end)


def _commit(member: Member, high_watermark: int) -> None:
    if high_watermark > member.high_watermark:
        member.high_watermark = high_watermark
        member.effects.append(CommitEntries(high_watermark=high_watermark))


# --- as a follower, or looking for a leader


def send_fetch(member: Member) -> None:
    if member.fetch_due_ms is None or member.fetch_in_flight is not None or member.fetch_due_ms > member.now_ms:
        return
    # While the leader cannot be reached every second request goes to a voter that may know its successor.
    asks_leader = member.role is RaftRole.FOLLOWER and member.fetch_failures % 2 == 0
    to = member.leader_id if asks_leader else _next_to_ask(member)
    member.fetch_number += 1
    member.fetch_in_flight = member.fetch_number
    request = FetchRequest(
        replica_id=member.node_id,
        epoch=member.epoch,
        fetch_offset=member.log.end_offset,
        last_fetched_epoch=log_view.last_epoch(member.log),
        high_watermark=member.high_watermark,
        number=member.fetch_number,
    )
    member.effects.append(Send(to=to, request=request))


def _next_to_ask(member: Member) -> int:
    """Return the next voter to ask for the leader, in turn."""
    others = member.other_voters
    member.asked_last += 1
    return others[member.asked_last % len(others)]


def on_fetch_response(member: Member, sender: int, request: FetchRequest, response: FetchResponse) -> None:
    is_awaited = request.number == member.fetch_in_flight
    if is_awaited:
        member.fetch_in_flight = None
    answer = response.answer
    if elections.learns(member, answer.epoch, answer.leader_id) or not is_awaited:
        return
    follows_sender = member.role is RaftRole.FOLLOWER and sender == member.leader_id and request.epoch == member.epoch
    if answer.error is not ErrorCode.NONE or not follows_sender:
        if follows_sender and answer.epoch == member.epoch and answer.leader_id == NO_LEADER:
            member.ended_epoch = member.epoch
            member.become_unattached(member.epoch)  # it has resigned
        else:
            _fetch_later(member)
        return
    member.has_fetched = True
    member.hear_from_leader()
    member.fetch_failures = 0
    if answer.diverging is not None:
        _truncate(member, answer.diverging)
        return
    member.leader_high_watermark = answer.high_watermark
    if response.batches:
        member.fetch_due_ms = None  # until they are on the disk
        member.effects.append(AppendFetched(batches=response.batches))
    else:
        _fetch_on(member)


def _truncate(member: Member, diverging: EpochEnd) -> None:
    member.leader_high_watermark = 0  # until it is known that the logs agree
    offset = log_view.truncation_point(member.log, diverging)
    if offset < member.high_watermark:
        member.effects.append(
            Diverged(
                message=f"the leader's log parts from this one at offset {offset}, but everything below "
                f"{member.high_watermark} was committed: a majority of the quorum has lost its log"
            )
        )
        _fetch_later(member)
    else:
        member.fetch_due_ms = None  # until it is gone
        member.effects.append(TruncateTo(offset=offset))


def _fetch_on(member: Member) -> None:
    """Continue after a fetch without divergence: batches that the leader has committed up to the log end are committed
    here.
    """
    _commit(member, min(member.leader_high_watermark, member.log.end_offset))
    member.fetch_due_ms = member.now_ms


def _fetch_later(member: Member) -> None:
    backoff_ms = min(member.timeouts.retry_ms << min(member.fetch_failures, 16), member.timeouts.max_retry_ms)
    member.fetch_failures += 1
    member.fetch_due_ms = member.now_ms + backoff_ms


def on_no_fetch_response(member: Member, request: FetchRequest) -> None:
    if request.number == member.fetch_in_flight:
        member.fetch_in_flight = None
        _fetch_later(member)


def on_log_changed(member: Member) -> None:
    if member.role is RaftRole.LEADER:
        _advance_high_watermark(member)
    elif member.role is RaftRole.FOLLOWER and member.fetch_in_flight is None:
        _fetch_on(member)
