"""The scheduler: delivers the messages of a schedule when they are due.

Any number may run; they share the slots as the members of a group, `ottla.schedule.<name>`. A message is never early:
not by this host's clock, and not by the brokers' clock as it was last read.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import OFFSET_END, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from ottla.admin import Admin, SettingInfo
from ottla.clock import Clock, SystemClock
from ottla.config import consumer_settings, security_of
from ottla.consumer.readiness.health import Health
from ottla.consumer.readiness.schedules import SchedulerStanding
from ottla.errors import ConfigError, FencedError, OttlaError, UnknownTopic
from ottla.failures.exceptions import described
from ottla.records import TopicPartition
from ottla.retrying import try_again
from ottla.schedule.headers import DEFAULT_NAME, config_problem, schedule_topic
from ottla.schedule.slot_work import SlotWork
from ottla.schedule.tasks.task_records import tasks_topic
from ottla.schedule.tasks.task_work import TaskWork
from ottla.schedule.topics import schedule_specs
from ottla.schedule.wheel import WHEEL
from ottla.sync.client.guarded import Consumer
from ottla.sync.serve.task_registration import create_topics
from ottla.telemetry import Hooks, Listeners, log_event
from ottla.telemetry.metrics.measurements import ScheduleMeasure
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.ranges import Isolation

_numbers: Final = itertools.count(1)

TICK_S: Final = 0.1
_MEASURE_EVERY_MS: Final = 1_000
_TASKS_EVERY_MS: Final = 2_000
"""How often the topic of recurring tasks is looked for while there is none."""
_TASKS_SLOT: Final = 0
"""Its owner owns the recurring tasks."""
_LOOK_EVERY_MS: Final = 60_000
"""How often the topic's settings are looked at."""
_ADMIN_S: Final = 30.0
_KNOWN_WITHIN_S: Final = 30.0
_AGAIN_MS: Final = 1_000
_MOST_BEHIND_MS: Final = 1_000
_WAIT_MS: Final = 5_000
"""How long one slot, or one target, that cannot be reached holds up the others."""
_BACKOFF_MS: Final = 20
"""Delay between two attempts while the previous transaction is still ending."""


class Scheduler:
    """Delivers the messages of one schedule.

        with Scheduler("localhost:9092") as scheduler:
            scheduler.run()              # until stop(), from another thread or a signal

    `create` makes the schedule's topic, with as many replicas as `replication_factor` says (3, or as many brokers as
    there are), and its dead letter topic, when they are missing. `assigned` names slots that nobody else has, instead
    of those that the group gives; it is for tests.
    """

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        name: str = DEFAULT_NAME,
        settings: Mapping[str, Any] | None = None,
        create: bool = True,
        replication_factor: int | None = None,
        assigned: Iterable[int] | None = None,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._name = name
        self.topic = schedule_topic(name)
        self._settings = consumer_settings(bootstrap_servers, group_id=self.topic, settings=settings)
        self._own = {"bootstrap.servers": self._settings["bootstrap.servers"], **security_of(self._settings)}
        self._create = create
        self._replicas = replication_factor
        self._assigned = None if assigned is None else frozenset(assigned)
        self._clock = clock or SystemClock()
        self._monotonic = SystemClock().monotonic_ms
        self._id = f"scheduler-{next(_numbers)}"
        self._tasks = TopicPartition(tasks_topic(name), 0)
        self._tasks_looked_ms: int | None = None
        self._works: dict[TopicPartition, SlotWork | TaskWork] = {}
        self._again_ms: dict[TopicPartition, int] = {}
        self._ahead_ms: int | None = None
        """The brokers' clock, as last read, minus the monotonic clock of then."""
        self._broker_time_read_ms = 0
        self._is_behind = False
        self._listeners = Listeners.of(hooks)
        self._failing: dict[TopicPartition, tuple[int, str]] = {}
        """Slot → (since when, why) it cannot be read or written."""
        self._asked: Future[dict[str, SettingInfo]] | None = None
        """The pending request for the topic's settings."""
        self._looked_ms = 0
        self._unsafe: str | None = None
        """Why the topic may lose messages, as of the last answer."""
        self._standing: SchedulerStanding | None = None
        self._measured_ms = -_MEASURE_EVERY_MS
        self._stopping = threading.Event()
        self._consumer: Consumer | None = None
        self._cluster: Cluster | None = None
        self._admin: Admin | None = None
        self._asking: ThreadPoolExecutor | None = None
        """Executor of requests for topic settings, so that no slot waits for the response."""

    def start(self) -> None:
        """Check the topic, or create it, and join the others. Raises `ConfigError` for a topic that may lose records,
        and `UnknownTopic` for a missing one that is not to be created."""
        if self._cluster is not None:
            return
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        wire = connection_settings(
            self._own,
            isolation=Isolation.READ_COMMITTED,
            client_id=self._own.get("client.id", "ottla-scheduler"),
            api_timeout_ms=_WAIT_MS,
            delivery_timeout_ms=_WAIT_MS,
            retry_backoff_ms=_BACKOFF_MS,
        )
        self._cluster = Cluster(wire)
        self._admin = Admin(settings=self._own, timeout_s=_ADMIN_S)
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="ottla-scheduler-settings")
        self._ensure_topic()
        if self._assigned is not None:
            for partition in sorted(self._assigned):
                self._begin(TopicPartition(self.topic, partition))
            return
        config = {
            **self._settings.to_confluent(),
            "enable.auto.commit": False,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",  # a slot that stays is not read again
            "log_level": 0,
        }
        self._consumer = Consumer(config)
        self._consumer.subscribe(
            [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def run(self) -> None:
        """Deliver until `stop`."""
        self.start()
        log_event("scheduler_started", "info", {"schedule": self.topic})
        try:
            while not self._stopping.is_set():
                if self._consumer is None:
                    self._stopping.wait(0 if self._is_behind else TICK_S)
                else:
                    self._consumer.poll(0 if self._is_behind else TICK_S)
                self.tick()
        finally:
            self.close()
            log_event("scheduler_stopped", "info", {"schedule": self.topic})

    def stop(self) -> None:
        """Ask `run` to end. From any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Release all slots and leave the group."""
        for work in self._works.values():
            work.close()
        self._works.clear()
        self._failing.clear()
        self._standing = self._asked = None
        self._listeners.schedule_measured(schedule=self._name, scheduler=self._id, measure=None)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
        admin, self._admin = self._admin, None
        asking, self._asking = self._asking, None
        if asking is not None and admin is not None:  # behind a question that a broker may not answer: not waited for
            asking.submit(admin.close)
            asking.shutdown(wait=False)

    def tick(self) -> None:
        """Do what is due in the slots that are here. `run` calls it ten times a second."""
        self._is_behind = False
        self._find_tasks()
        for place in list(self._works):
            if self._stopping.is_set():
                return  # each slot would wait for a broker that is away
            if self._again_ms.get(place, 0) > self._monotonic():
                continue
            try:
                self._tick_slot(self._works[place])
                self._failing.pop(place, None)
            except FencedError as error:
                self._reset_slot(place, error, "info")
            except (OttlaError, KafkaException) as error:
                self._reset_slot(place, error, "warning")
        self._watch_config()
        if self._monotonic() >= self._measured_ms + _MEASURE_EVERY_MS:
            self._measure()

    def health(self) -> Health:
        """Return whether it does its work, and why not: it is late, or cannot read or write a slot. From any thread."""
        standing = self._standing
        if standing is None:
            return Health(is_alive=True, is_ready=False, problems=(f"{self.topic}: the scheduler has not started",))
        return standing.health(now_ms=self._clock.now_ms(), monotonic_ms=self._monotonic())

    @property
    def slots(self) -> list[int]:
        """The slots that are here."""
        return sorted(place.partition for place in self._works if place != self._tasks)

    @property
    def delivered(self) -> int:
        """Return how many messages and runs this scheduler delivered from the slots that it has."""
        return sum(work.owned.delivered for work in self._works.values())

    @property
    def waiting(self) -> int:
        """Return how many messages wait in open slots."""
        return sum(len(work.slot.waiting) for work in self._works.values() if isinstance(work, SlotWork))

    def __enter__(self) -> Scheduler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # One slot

    def _tick_slot(self, work: SlotWork | TaskWork) -> None:
        own_ms = self._clock.now_ms()
        now_ms = self._guarded(own_ms)
        if now_ms is None:
            work.claim()  # the brokers' time is not known yet
            now_ms = self._guarded(own_ms)
        assert now_ms is not None
        if (
            work.owned.is_open
            and now_ms < own_ms - _MOST_BEHIND_MS
            and self._monotonic() >= self._broker_time_read_ms + _AGAIN_MS
        ):
            work.read_broker_time()  # the brokers' clock was set forward, or ours is ahead: only they know
            now_ms = self._guarded(own_ms) or now_ms
        work.tick(now_ms)
        if work.owned.is_open:
            self._is_behind |= work.owned.is_behind
        else:
            work.close()

    def _guarded(self, own_ms: int) -> int | None:
        """Return the time of whichever clock is behind, the brokers' or ours; None while the brokers' is unknown."""
        return None if self._ahead_ms is None else min(own_ms, self._monotonic() + self._ahead_ms)

    def _appended(self, appended_ms: int) -> None:
        self._broker_time_read_ms = self._monotonic()
        self._ahead_ms = appended_ms - self._broker_time_read_ms

    def _dispatched(self, messages: int, due_ms: int) -> None:
        lateness_s = max(0, self._clock.now_ms() - due_ms) / 1_000
        self._listeners.dispatched(schedule=self._name, messages=messages, lateness_s=lateness_s)

    def _measure(self) -> None:
        self._measured_ms = self._monotonic()
        found = {place: work.owned.next_due_ms for place, work in self._works.items()}
        tasks = next((work.tasks for work in self._works.values() if isinstance(work, TaskWork)), None)
        self._standing = standing = SchedulerStanding(
            topic=self.topic,
            due_ms={place: due_ms for place, due_ms in found.items() if due_ms is not None},
            failing=dict(self._failing),
            undispatched={} if tasks is None else tasks.problems,
            unsafe=self._unsafe,
            at_ms=self._measured_ms,
        )
        if self._listeners.refresh():
            measure = ScheduleMeasure(
                slots=len(self.slots),
                failing=len(self._failing),
                waiting=self.waiting,
                oldest_due_s=standing.oldest_due_s(self._clock.now_ms()),
                unreadable=sum(work.owned.unreadable for work in self._works.values()),
            )
            self._listeners.schedule_measured(schedule=self._name, scheduler=self._id, measure=measure)

    def _begin(self, place: TopicPartition) -> None:
        assert self._cluster is not None
        if place == self._tasks:
            self._works[place] = TaskWork(
                place, cluster=self._cluster, appended=self._appended, dispatched=self._dispatched
            )
            return
        self._works[place] = SlotWork(
            place,
            cluster=self._cluster,
            delete=self._delete,
            now_ms=self._clock.now_ms,
            appended=self._appended,
            dispatched=self._dispatched,
        )

    def _find_tasks(self) -> None:
        """Take the recurring tasks with their slot, once an app has created their topic."""
        if self._tasks in self._works or TopicPartition(self.topic, _TASKS_SLOT) not in self._works:
            return
        now_ms = self._monotonic()
        if self._tasks_looked_ms is not None and now_ms < self._tasks_looked_ms + _TASKS_EVERY_MS:
            return
        self._tasks_looked_ms = now_ms
        assert self._cluster is not None
        try:
            self._cluster.topic(self._tasks.topic)
        except OttlaError:
            return  # none yet; a broker that is away is reported by the slots
        self._begin(self._tasks)

    def _reset_slot(self, place: TopicPartition, error: BaseException, level: str) -> None:
        """Forget the slot: what it knew may be wrong. There is nothing to undo."""
        log_event("schedule_slot_reset", level, {"slot": str(place), "error": described(error)})
        since_ms, _ = self._failing.get(place, (self._monotonic(), ""))
        self._failing[place] = since_ms, described(error)
        self._works[place].close()
        self._begin(place)
        self._again_ms[place] = self._monotonic() + _AGAIN_MS

    def _delete(self, place: TopicPartition, to: int) -> None:
        assert self._admin is not None
        self._admin.delete_records({place: to})

    # Slots come and go

    def _on_assign(self, consumer: Any, partitions: list[ClientPartition]) -> None:
        consumer.incremental_assign([ClientPartition(each.topic, each.partition, OFFSET_END) for each in partitions])
        consumer.pause(partitions)  # they are read past this client, which is here for the group only
        for each in partitions:
            self._begin(TopicPartition(each.topic, each.partition))
        self._tasks_looked_ms = None

    def _on_revoke(self, consumer: Any, partitions: list[ClientPartition]) -> None:
        for each in partitions:
            self._release(TopicPartition(each.topic, each.partition))
            if each.partition == _TASKS_SLOT:
                self._release(self._tasks)

    def _release(self, place: TopicPartition) -> None:
        self._failing.pop(place, None)
        work = self._works.pop(place, None)
        if work is not None:
            work.close()

    # The topic

    def _ensure_topic(self) -> None:
        try:
            self._check_topic()
        except UnknownTopic:
            if not self._create:
                raise
            assert self._admin is not None
            brokers = len(self._admin.facts(()).brokers)
            specs = schedule_specs(self.topic, brokers=brokers, replication_factor=self._replicas)
            create_topics(self._admin, specs, servers=self._own["bootstrap.servers"])
            until_s = time.monotonic() + _KNOWN_WITHIN_S  # other brokers learn of a topic a little later
            try_again(self._check_topic, what=f"topic {self.topic}", errors=UnknownTopic, until_s=until_s)

    def _check_topic(self) -> None:
        assert self._cluster is not None
        found = self._cluster.topic(self.topic)
        if len(found.leaders) != WHEEL.partitions:
            raise ConfigError(
                f"{self.topic}: found {len(found.leaders)} partitions, wanted {WHEEL.partitions}: each is a slot of "
                "the wheel, and senders compute the slot from this number"
            )
        self._check_config()

    def _check_config(self) -> None:
        problem = config_problem(self.topic, _values(self._ask_config().result()))
        if problem is not None:
            raise ConfigError(problem)

    def _ask_config(self) -> Future[dict[str, SettingInfo]]:
        assert self._admin is not None
        assert self._asking is not None
        self._looked_ms = self._monotonic()
        return self._asking.submit(self._admin.topic_settings, self.topic)

    def _watch_config(self) -> None:
        """Report retention that was set while messages wait. Delivery continues, as it is what saves them."""
        if self._asked is None:
            if self._monotonic() >= self._looked_ms + _LOOK_EVERY_MS:
                self._asked = self._ask_config()
        elif self._asked.done():
            answer, self._asked = self._asked, None
            if answer.exception() is None:  # else the next check finds it
                problem = config_problem(self.topic, _values(answer.result()))
                if problem is not None and problem != self._unsafe:
                    log_event("schedule_unsafe", "error", {"schedule": self.topic, "error": problem})
                self._unsafe = problem


def _values(config: Mapping[str, SettingInfo]) -> dict[str, str | None]:
    return {name: entry.value for name, entry in config.items()}
