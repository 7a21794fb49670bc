"""Fetches of the metadata log, from both sides: a follower's own, and those that a leader counts and answers."""

from __future__ import annotations

from broker_embedded.controller.raft import log_view
from broker_embedded.controller.raft.answers import answer_fetch
from broker_embedded.controller.raft.effects import AppendFetched, Commit, Diverged, Reply, Send, TruncateTo
from broker_embedded.controller.raft.elections import Elections
from broker_embedded.controller.raft.log_view import EpochEnd
from broker_embedded.controller.raft.messages import NO_LEADER, FetchAnswer, FetchRequest, FetchResponse
from broker_embedded.controller.raft.roles import Role
from ottla_wire.protocol import ErrorCode


class Replication(Elections):
    """See the module."""

    _fetch_number = 0
    _asked_last = 0

    # --- as the leader

    def fetch_answer(self, fetch: FetchRequest) -> FetchAnswer:
        """What is to be said to `fetch` now. Asking changes nothing: also for a fetch that has waited."""
        return answer_fetch(
            fetch,
            log=self.log,
            epoch=self.epoch,
            leader_id=self.leader_id,
            is_leader=self.progress is not None,
            high_watermark=self.high_watermark,
        )

    def _on_fetch_request(self, fetch: FetchRequest) -> None:
        answer = self.fetch_answer(fetch)
        is_replica = 0 <= fetch.replica_id != self.node_id
        if self.progress is not None and answer.may_have_batches and is_replica:
            self.progress.fetched(
                fetch.replica_id, fetch.fetch_offset, leader_end=self.log.end_offset, now_ms=self._now_ms
            )
            self._advance_high_watermark()
            answer = self.fetch_answer(fetch)
        self._effects.append(Reply(response=answer))

    def _advance_high_watermark(self) -> None:
        """Only once a batch of this epoch counts: what earlier epochs left could still be replaced (figure 8)."""
        assert self.progress is not None
        majority_end = self.progress.majority_end(self.log.end_offset)
        if majority_end > self.progress.epoch_start_offset:
            self._commit(majority_end)

    def _commit(self, high_watermark: int) -> None:
        if high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self._effects.append(Commit(high_watermark=high_watermark))

    # --- as a follower, or looking for a leader

    def _send_fetch(self) -> None:
        if self._fetch_due_ms is None or self._fetch_in_flight is not None or self._fetch_due_ms > self._now_ms:
            return
        # While the leader cannot be reached every second request goes to somebody who may know its successor.
        asks_leader = self.role is Role.FOLLOWER and self._fetch_failures % 2 == 0
        to = self.leader_id if asks_leader else self._next_to_ask()
        self._fetch_number += 1
        self._fetch_in_flight = self._fetch_number
        request = FetchRequest(
            replica_id=self.node_id,
            epoch=self.epoch,
            fetch_offset=self.log.end_offset,
            last_fetched_epoch=log_view.last_epoch(self.log),
            high_watermark=self.high_watermark,
            number=self._fetch_number,
        )
        self._effects.append(Send(to=to, request=request))

    def _next_to_ask(self) -> int:
        """One voter after the other: any of them knows the leader, if there is one."""
        others = self.other_voters
        self._asked_last += 1
        return others[self._asked_last % len(others)]

    def _on_fetch_response(self, sender: int, request: FetchRequest, response: FetchResponse) -> None:
        is_awaited = request.number == self._fetch_in_flight
        if is_awaited:
            self._fetch_in_flight = None
        answer = response.answer
        if self._learns(answer.epoch, answer.leader_id) or not is_awaited:
            return
        follows_sender = self.role is Role.FOLLOWER and sender == self.leader_id and request.epoch == self.epoch
        if answer.error is not ErrorCode.NONE or not follows_sender:
            if follows_sender and answer.epoch == self.epoch and answer.leader_id == NO_LEADER:
                self._ended_epoch = self.epoch
                self._become_unattached(self.epoch)  # it has resigned
            else:
                self._fetch_later()
            return
        self._has_fetched = True
        self._hear_from_leader()
        self._fetch_failures = 0
        if answer.diverging is not None:
            self._truncate(answer.diverging)
            return
        self._leader_high_watermark = answer.high_watermark
        if response.batches:
            self._fetch_due_ms = None  # until they are on the disk
            self._effects.append(AppendFetched(batches=response.batches))
        else:
            self._fetch_on()

    def _truncate(self, diverging: EpochEnd) -> None:
        self._leader_high_watermark = 0  # until it is known that the logs agree
        offset = log_view.truncation_point(self.log, diverging)
        if offset < self.high_watermark:
            self._effects.append(
                Diverged(
                    message=f"the leader's log parts from this one at offset {offset}, but everything below "
                    f"{self.high_watermark} was committed: a majority of the quorum has lost its log"
                )
            )
            self._fetch_later()
        else:
            self._fetch_due_ms = None  # until it is gone
            self._effects.append(TruncateTo(offset=offset))

    def _fetch_on(self) -> None:
        """The log agrees with the leader's as far as it goes: what the leader knows to be committed is, that far."""
        self._commit(min(self._leader_high_watermark, self.log.end_offset))
        self._fetch_due_ms = self._now_ms

    def _fetch_later(self) -> None:
        backoff_ms = min(self.timeouts.retry_ms << min(self._fetch_failures, 16), self.timeouts.max_retry_ms)
        self._fetch_failures += 1
        self._fetch_due_ms = self._now_ms + backoff_ms

    def _on_no_fetch_response(self, request: FetchRequest) -> None:
        if request.number == self._fetch_in_flight:
            self._fetch_in_flight = None
            self._fetch_later()

    def _on_log_changed(self) -> None:
        if self.role is Role.LEADER:
            self._advance_high_watermark()
        elif self.role is Role.FOLLOWER and self._fetch_in_flight is None:
            self._fetch_on()
