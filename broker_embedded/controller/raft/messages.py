"""Requests and responses between voters and observers, without wire versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_embedded.controller.raft.log_view import EpochEnd
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

NO_LEADER = -1
KNOWS_ALL = (1 << 63) - 1
"""High watermark of a reader that does not send its own: a newer one never wakes it."""


@fact
class VoteRequest:
    """`candidate_id` requests a vote. A pre-vote (KIP-996) binds no voter and keeps the epoch."""

    candidate_id: int
    epoch: int
    last_epoch: int
    end_offset: int
    pre_vote: bool = False


@fact
class VoteResponse:
    """A response with another `error` than NONE grants nothing. Leader and epoch are the voter's."""

    voter_id: int
    epoch: int
    leader_id: int
    granted: bool
    error: ErrorCode = ErrorCode.NONE


@fact
class BeginQuorumEpochRequest:
    """`leader_id` leads `epoch`."""

    leader_id: int
    epoch: int


@fact
class EndQuorumEpochRequest:
    """`leader_id` leads `epoch` no longer. The voter that is furthest is the first of `successors`."""

    leader_id: int
    epoch: int
    successors: Sequence[int]


@fact
class EpochResponse:
    """The response to both: the voter's leader and epoch."""

    voter_id: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE


@fact
class FetchRequest:
    """A replica's log ends at `fetch_offset` in `last_fetched_epoch`: it has, durably, everything below."""

    replica_id: int
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int = KNOWS_ALL
    number: int = 0
    """Distinguishes the sender's own requests. Not on the wire."""


@fact
class FetchAnswer:
    """A leader's decision about a fetch; the owner of the log adds the batches from `fetch_offset` on.

    `is_worth_sending` is false when there is nothing that the replica does not know: the answer may wait.
    """

    epoch: int
    leader_id: int
    high_watermark: int
    error: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None
    is_worth_sending: bool = True

    @property
    def may_have_batches(self) -> bool:
        return self.error is ErrorCode.NONE and self.diverging is None


@fact
class FetchResponse:
    """An answer with its batches, as bytes (in simulations: anything)."""

    answer: FetchAnswer
    batches: Any = None


ElectionRequest = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest
Request = ElectionRequest | FetchRequest
Response = VoteResponse | EpochResponse | FetchAnswer
