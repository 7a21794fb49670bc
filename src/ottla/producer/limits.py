"""Which records are too large for which topic, and who says so.

Three limits meet: the topic's `max.message.bytes`, the broker's `message.max.bytes` (a topic without a limit of its
own shows it as its effective value) and the client's `max.request.size`. The smallest holds. What is known about
topics comes from the live cluster, is kept for a while and asked for again; until the first answer only the client's
limit holds, so that sending never waits.

Pure: time is an argument, and asking the cluster is the shell's work (`due` says for which topics).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.clock import Clock
from ottla.errors import RecordTooLarge, RetriableError
from ottla.failures.exceptions import described
from ottla.producer.schedulers import SchedulerWatch
from ottla.schedule.headers import TOPIC_PREFIX
from ottla.schedule.topics import is_schedule
from ottla.telemetry import log_event

CLIENT_SETTING: Final = "max.request.size (this client's setting)"

TOPIC_CONFIG_NAME: Final = "max.message.bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The largest batch a topic takes, and the setting that says so, in words for a message."""

    limit_bytes: int
    setting: str


def limit_from_config(topic: str, value: str, *, is_topics_own: bool, is_broker_default: bool) -> Limit:
    """Return a topic's effective `max.message.bytes` as the cluster describes it, with the setting behind it."""
    if is_topics_own:
        setting = f"max.message.bytes of topic {topic}"
    elif is_broker_default:
        setting = f"Kafka's default of message.max.bytes (topic {topic} has no max.message.bytes of its own)"
    else:
        setting = f"message.max.bytes of the broker (topic {topic} has no max.message.bytes of its own)"
    return Limit(limit_bytes=int(value), setting=setting)


class LimitsCache:
    """Limits by topic, as the cluster last returned them. One owner writes; reading `effective` needs no lock."""

    RETRY_MS: Final = 1_000
    """Delay before an unanswered request is repeated, and the minimum distance of requests caused by refusals."""

    def __init__(self, *, client_limit_bytes: int, max_age_ms: int) -> None:
        self._client = Limit(limit_bytes=client_limit_bytes, setting=CLIENT_SETTING)
        self._max_age_ms = max_age_ms
        self._limits: dict[str, Limit] = {}
        self._ask_at_ms: dict[str, int] = {}
        self._asked_at_ms: dict[str, int] = {}
        self.effective: dict[str, int] = {}
        """Topic to the bytes that hold for it: the shells' hot paths read it. A topic that is missing is unknown."""

    def limit(self, topic: str) -> Limit:
        """Return the smallest limit that is known to hold for a topic."""
        limit = self._limits.get(topic)
        if limit is None or self._client.limit_bytes <= limit.limit_bytes:
            return self._client
        return limit

    def topic_limit(self, topic: str) -> Limit | None:
        """Return the cluster's limit for a topic, or None while the cluster has not answered."""
        return self._limits.get(topic)

    def check(self, topic: str, size_bytes: int) -> None:
        """Raise RecordTooLarge when a record of this encoded size cannot be sent to the topic."""
        limit = self.limit(topic)
        if size_bytes > limit.limit_bytes:
            raise RecordTooLarge(
                topic=topic, size_bytes=size_bytes, limit_bytes=limit.limit_bytes, setting=limit.setting
            )

    def watch(self, topic: str, *, now_ms: int) -> None:
        """Watch a topic: use the client's limit until the cluster returns the topic's."""
        if topic not in self.effective:
            self.effective[topic] = self._client.limit_bytes
            self._ask_at_ms[topic] = now_ms

    def ask_again(self, topic: str, *, now_ms: int) -> None:
        """Ask again, but not in a storm: a refusal, or a broker's MESSAGE_TOO_LARGE, contradicts what is known."""
        if topic in self._ask_at_ms:
            soonest = self._asked_at_ms.get(topic, now_ms - self.RETRY_MS) + self.RETRY_MS
            self._ask_at_ms[topic] = min(self._ask_at_ms[topic], max(soonest, now_ms))

    def due(self, now_ms: int) -> list[str]:
        """Return the topics whose limit is to be asked for now. They count as asked from here on."""
        topics = [topic for topic, at_ms in self._ask_at_ms.items() if at_ms <= now_ms]
        for topic in topics:
            self._asked_at_ms[topic] = now_ms
            self._ask_at_ms[topic] = now_ms + self.RETRY_MS
        return topics

    def next_due_ms(self) -> int | None:
        """Return when the next question is due, or None while no topic is watched."""
        return min(self._ask_at_ms.values(), default=None)

    def on_limit(self, topic: str, limit: Limit, *, now_ms: int) -> None:
        """Set the limit that the cluster returned for a topic."""
        self._limits[topic] = limit
        self.effective[topic] = min(limit.limit_bytes, self._client.limit_bytes)
        self._ask_at_ms[topic] = now_ms + self._max_age_ms

    def refused(self, topics: Iterable[str], *, now_ms: int) -> None:
        """Keep the known limit and retry later: DescribeConfigs is not permitted."""
        for topic in topics:
            self._ask_at_ms[topic] = now_ms + self._max_age_ms

    def forget(self, topics: Collection[str]) -> None:
        """Forget topics that are gone."""
        for topic in topics:
            for table in (self._limits, self._ask_at_ms, self._asked_at_ms, self.effective):
                table.pop(topic, None)


class LimitWatch:
    """Keeps a `LimitsCache` up to date beside the sending, and checks that schedulers run for delayed messages. A shell
    adds the requests and their timing."""

    def __init__(
        self,
        *,
        admin_config: Mapping[str, Any],
        limits: LimitsCache,
        on_limit: Callable[[str, Limit], None],
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self._admin_config = dict(admin_config)
        self._limits = limits
        self._on_limit = on_limit
        self._clock = clock
        self._timeout_s = timeout_ms / 1000
        self._schedulers = SchedulerWatch()
        self._missing: set[str] = set()
        """Topics that the cluster did not have, or did not describe, when it was asked last."""
        self._schedules_made: set[str] = set()
        self.unmade_schedules: dict[str, str] = {}
        """Topic of a schedule that is missing → why this client could not create it."""

    def _begin(self, topic: str) -> None:
        """Watch a topic."""
        now_ms = self._clock.monotonic_ms()
        self._limits.watch(topic, now_ms=now_ms)
        self._schedulers.watch(topic, now_ms=now_ms)

    def _next_due_ms(self) -> int | None:
        due_ms = (self._limits.next_due_ms(), self._schedulers.next_due_ms())
        return min((each for each in due_ms if each is not None), default=None)

    def _on_scheduler_state(self, group: str, state: str | None) -> None:
        if self._schedulers.on_state(group, state):
            name = group.removeprefix(TOPIC_PREFIX)
            hint = f"ottla schedule run --name {name}, or App(scheduler={name!r}) in a service"
            log_event("no_scheduler", "warning", {"schedule": group, "hint": hint})

    def _schedules_to_make(self) -> list[str]:
        """Return the missing topics that belong to schedules and must be created now: each once."""
        missing, self._missing = self._missing, set()
        new = [topic for topic in missing if is_schedule(topic) and topic not in self._schedules_made]
        self._schedules_made.update(new)
        return new

    def _schedule_not_made(self, topic: str, error: BaseException) -> None:
        self.unmade_schedules[topic] = described(error)
        if isinstance(error, RetriableError):
            self._schedules_made.discard(topic)  # tried again with the next question

    def _answered(self, found: Mapping[str, Limit], refused: Iterable[str]) -> None:
        """Take the limits of topics, and the topics that the cluster will not describe."""
        now_ms = self._clock.monotonic_ms()
        self._limits.refused(refused, now_ms=now_ms)
        for topic, limit in found.items():
            self._limits.on_limit(topic, limit, now_ms=now_ms)

    def _tell(self, found: Mapping[str, Limit]) -> None:
        for topic, limit in found.items():
            self._on_limit(topic, limit)
