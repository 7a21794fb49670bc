"""What to do with a record that failed: one pure decision from the failure, the attempts so far and what is declared.

    Skip, Ack (from the exception table)  → `Finish`
    an outage (the registry is down)      → `RetryAt`, attempts not counted
    Retry, attempts left                  → `RetryAt`
    Retry, a strategy that raises         → `Stop`: the app's declaration is wrong, and the record waits for a new one
    Retry, not named by `retry=`          → as Dead
    Retry, none left, a retry topic left  → `Postpone` to the next retry topic; where the handler asked for a delay, to
                                            the next one that waits as long
    the same in the last retry topic, of  → `RetryAt`: it followed an earlier record of its key there, and has its own
      a record that had fewer deliveries    deliveries all the same, with the delays it did not have yet
    Retry, none left; or Dead             → `DeadLetter` when a topic is declared, else `Stop`
    a wait that ends when the record has  → `Expire`: it would not be delivered after the wait
      expired

`Stop` holds the partition where it is and turns the consumer unready. Never log-and-commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from ottla.errors import ConfigError
from ottla.failures.exceptions import Failure
from ottla.failures.expiry import NEVER, Expiry
from ottla.failures.outcomes import Dead, Retry
from ottla.failures.retry import RetryPolicy
from ottla.failures.retry_topics import RetryTopics
from ottla.failures.strategies import Ended
from ottla_wire.facts import positional_fact

_OUTAGE_BACKOFF: Final = RetryPolicy(max_attempts=None, initial_s=0.25, max_s=15.0)


@positional_fact
class Finish:
    """The record is done without having been handled, on request (`Skip`, or an exception declared as `Ack`)."""


@positional_fact
class RetryAt:
    """Deliver it again, not before `due_ms`."""

    due_ms: int


@positional_fact
class Postpone:
    """Write the record to retry topic `number` (1 is the first), where it is handled after `delay_ms`."""

    number: int
    delay_ms: int


@positional_fact
class DeadLetter:
    """Write it to `topic`; it is done when that write is acknowledged."""

    topic: str


@positional_fact
class Expire:
    """The record would expire before its next delivery."""


@positional_fact
class Stop:
    """Hold the partition at this record and turn unready: nothing that was declared can take the record."""

    reason: str


Decision: TypeAlias = Finish | RetryAt | Postpone | DeadLetter | Expire | Stop


def unless_expired(decision: Decision, *, now_ms: int, wall_ms: int, expires_ms: int | None) -> Decision:
    """Return the decision, or `Expire` if the record expires before its next delivery. `expires_ms` is wall time."""
    if expires_ms is None or not isinstance(decision, RetryAt | Postpone):
        return decision
    wait_ms = decision.due_ms - now_ms if isinstance(decision, RetryAt) else decision.delay_ms
    return Expire() if wall_ms + wait_ms >= expires_ms else decision


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy:
    """A handler's declared policies for failures."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    retry_topics: RetryTopics | None = None
    dead_letter_topic: str | None = None
    expiry: Expiry = NEVER

    def decide(
        self,
        failure: Failure,
        *,
        attempts: int,
        outages: int,
        now_ms: int,
        random: Random,
        elapsed_ms: int = 0,
        stage: int = 0,
        carried: int = 0,
    ) -> Decision:
        """Return the decision after the failure number `attempts` of a record, in which `outages` are not counted.
        `elapsed_ms` is the time since its first failure here; `stage` the number of the retry topic that the record is
        in, 0 in its own topic; `carried` the number of failed deliveries before it was written there."""
        outcome = failure.outcome
        asked_ms = outcome.after_ms if isinstance(outcome, Retry) else None
        if failure.is_outage:
            backoff_ms = _OUTAGE_BACKOFF.delay_ms(outages, random)
            # What is asked for is the latest time at which a claim ends: its owner may be done much earlier.
            return RetryAt(now_ms + (backoff_ms if asked_ms is None else min(asked_ms, backoff_ms)))
        ended: Ended | None = None
        if isinstance(outcome, Retry):
            try:
                found = self.retry.next_delay_ms(
                    failure, outcome, attempts=attempts, elapsed_ms=elapsed_ms, random=random
                )
            except ConfigError as error:
                return Stop(f"{error}; it was asked about {failure.summary}")
            if isinstance(found, int):
                return RetryAt(now_ms + found)
            ended = found
        if ended is Ended.EXHAUSTED and self.retry_topics is not None:
            topics = len(self.retry_topics.delays_s)
            rounds = (carried + attempts) // (self.retry.last_attempt or 1)
            if stage < topics:
                return self._postpone(self.retry_topics, stage + 1, max(rounds, 1), asked_ms)
            if rounds <= topics:
                return RetryAt(now_ms + (self.retry_topics.delay_ms(rounds) if asked_ms is None else asked_ms))
        if isinstance(outcome, Retry | Dead):
            if self.dead_letter_topic is not None:
                return DeadLetter(self.dead_letter_topic)
            total = carried + attempts
            tried = f"after {total} attempts" if total > 1 else "at the first attempt"
            return Stop(f"{failure.kind} {tried} and no dead letter topic is declared ({failure.summary})")
        return Finish()

    @staticmethod
    def _postpone(retry_topics: RetryTopics, number: int, rounds: int, asked_ms: int | None) -> Postpone:
        """To retry topic `number` at the least. No record waits longer in a retry topic than the topic's delay: those
        behind it would wait as well. One that came to a retry topic behind another of its key, unhandled, is there at a
        later topic than its `rounds` of attempts: it waits as long as these say."""
        last = len(retry_topics.delays_s)
        while asked_ms is not None and number < last and retry_topics.delay_ms(number) < asked_ms:
            number += 1
        longest_ms = retry_topics.delay_ms(number)
        wanted_ms = retry_topics.delay_ms(min(rounds, number)) if asked_ms is None else asked_ms
        return Postpone(number, min(wanted_ms, longest_ms))
