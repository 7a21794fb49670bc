"""Effects of the quorum's state machine, in order: a later effect may rely on an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker_embedded.controller.raft.messages import EpochResponse, FetchAnswer, Request, VoteResponse
from ottla_wire.facts import fact


@fact
class ElectionState:
    """State that a node must never lose: Kafka's `quorum-state` file."""

    epoch: int = 0
    leader_id: int = -1
    voted_id: int = -1


@fact
class SaveState:
    """Make it durable before the next effect."""

    state: ElectionState


@fact
class Send:
    """Ask `to`. It ends in `Answered` or `NotAnswered`."""

    to: int
    request: Request


@fact
class PeerReply:
    """The answer to the `Requested` of this step."""

    response: VoteResponse | EpochResponse | FetchAnswer


@fact
class AppendLeaderChange:
    """Append the control batch with which a leader begins its epoch, durably; then `LogChanged`."""

    epoch: int
    leader_id: int
    voters: Sequence[int]
    granting_voters: Sequence[int]


@fact
class AppendFetched:
    """Append the leader's batches as they are, durably; then `LogChanged`."""

    batches: Any


@fact
class TruncateTo:
    """Drop everything from `offset` on, durably; then `LogChanged`."""

    offset: int


@fact
class CommitEntries:
    """Everything below `high_watermark` is committed."""

    high_watermark: int


@fact
class Diverged:
    """The leader lacks committed records: a majority lost its disks. Nothing is truncated; an operator has to
    decide.
    """

    message: str


Effect = SaveState | Send | PeerReply | AppendLeaderChange | AppendFetched | TruncateTo | CommitEntries | Diverged
