"""One round: a cluster, the chain, its members, the faults of the plan; then the evidence and the verdict."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_links import Proxies
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as ClientPartition

from ottla import Priorities, Producer
from ottla.browse.topic_reader import TopicReader
from ottla.failures import describe_dead_letter
from ottla.failures.retry_headers import original_of
from ottla.failures.retry_topics import retry_topic_name
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing.topics import create_topic
from torture_kit.journal import Delivery, MemberEvent, read_journal
from torture_kit.members import Member
from torture_kit.oracle import Committed, DeadLetter, Evidence, Incident, Sent, duplicates, judge
from torture_kit.plan import SCHEDULE, URGENT, URGENT_PARTITIONS, Fault, Kind, Plan, is_malformed

FEEDER = "feed"
STUCK_S = 45.0
"""Nothing came through for so long: longer than a session, a start and a join together on a loaded machine."""

NEVER_S = 2.0
"""The delay of messages that are cancelled at once."""

IMPATIENT_S = 1.5
"""The next fault comes early when nothing moves for so long: a stalled chain must not end the disturbance."""


@dataclass(slots=True)
class Verdict:
    """What became of a round."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    transcript: list[tuple[float, str]] = field(default_factory=list)
    duplicates: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_kept(self) -> bool:
        return not self.violations

    def account(self) -> str:
        """One line."""
        extra = ", ".join(f"{stage} {count}" for stage, count in self.duplicates.items())
        verdict = "kept" if self.is_kept else f"BROKEN ({len(self.violations)} violations)"
        return (
            f"seed {self.plan.seed} {self.plan.shell}: {verdict}, {self.plan.records} records, "
            f"{len(self.plan.faults)} faults, sent on again: {extra or 'none'}, {self.seconds:.1f} s"
        )

    def __str__(self) -> str:
        """The transcript, for somebody who was not there."""
        started_s = self.transcript[0][0] if self.transcript else 0.0
        lines = [f"{at_s - started_s:8.3f}  {text}" for at_s, text in sorted(self.transcript, key=lambda one: one[0])]
        shown = self.violations[:20]
        more = [f"... and {len(self.violations) - 20} more"] if len(self.violations) > 20 else []
        again = (
            f"again: tools/run torture --seed {self.plan.seed} --shells {self.plan.shell} "
            f"--records {self.plan.records} --faults {len(self.plan.faults)} --seconds 1"
            + " --retry-topics" * any(stage.retry_delays_s for stage in self.plan.stages)
            + " --wishes" * self.plan.has_wishes
        )
        return "\n".join(["", str(self.plan), "", *lines, "", *shown, *more, "", self.account(), again])


def run_round(plan: Plan, directory: Path) -> Verdict:
    """Run the plan with its files in `directory`."""
    started_s = time.monotonic()
    verdict = Verdict(plan)
    with ExitStack() as stack:
        bootstrap = stack.enter_context(_cluster(directory))
        chain = _Chain(plan, bootstrap, directory, verdict, stack)
        try:
            chain.run()
        except _Broken as broken:
            verdict.violations.append(str(broken))
        else:
            evidence = chain.evidence()
            verdict.violations += judge(plan, evidence)
            verdict.duplicates = duplicates(plan, evidence)
        if verdict.violations:
            chain.tell_everything()
    verdict.seconds = time.monotonic() - started_s
    return verdict


class _Broken(Exception):
    """The round cannot go on."""


class _Chain:
    """The running chain, and what disturbs it."""

    def __init__(self, plan: Plan, bootstrap: str, directory: Path, verdict: Verdict, stack: ExitStack) -> None:
        self._plan = plan
        self._bootstrap = bootstrap
        self._directory = directory
        self._verdict = verdict
        self._incidents: list[Incident] = []
        self._ending: list[tuple[float, Fault, Any, float]] = []
        self._count = 0
        self.members: list[Member] = []
        for topic in (plan.stages[0].source, *(stage.target for stage in plan.stages)):
            create_topic(bootstrap, topic, partitions=plan.partitions)
        if plan.has_wishes:
            create_topic(bootstrap, plan.stages[0].source + URGENT, partitions=plan.partitions)
            with Scheduler(bootstrap, name=SCHEDULE, assigned=()):
                pass  # it makes the schedule; the services run it
        for stage in plan.stages:
            create_topic(bootstrap, stage.dead_letter_topic)
        self._proxies = Proxies(bootstrap)
        stack.callback(self._proxies.close)
        stack.callback(self._end_members)
        self._feeder = self._proxies.link(FEEDER)
        self._producer = Producer(self._feeder.bootstrap_servers, settings={"linger.ms": 2}, schedule=SCHEDULE)
        self._cancels: dict[str, tuple[float, Any]] = {}
        """Key → (when it was due at the earliest, its cancel)."""
        self._cancelled: dict[str, tuple[float, float]] = {}
        """Key → (when it was due at the earliest, when its cancel was acknowledged)."""
        stack.callback(self._close_producer)
        self._watcher = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "watcher", "enable.auto.commit": False, "log_level": 0}
        )
        stack.callback(self._watcher.close)
        watched = [
            ClientPartition(plan.stages[-1].target, number, OFFSET_BEGINNING) for number in range(plan.partitions)
        ]
        watched += [ClientPartition(stage.dead_letter_topic, 0, OFFSET_BEGINNING) for stage in plan.stages]
        self._watcher.assign(watched)
        self._through: set[tuple[str, int]] = set()
        self._fed = 0
        self._started_s = time.monotonic()

    # The round

    def run(self) -> None:
        plan = self._plan
        for stage in plan.stages:
            for _ in plan.shells:
                self._start_member(stage.name)
        faults = list(plan.faults)
        moved_s = disturbed_s = time.monotonic()
        while True:
            before = len(self._through)
            self._feed()
            self._watch()
            now_s = time.monotonic()
            if len(self._through) > before:
                moved_s = now_s
            is_patience_over = now_s - max(moved_s, disturbed_s) > IMPATIENT_S and self._through
            if faults and (len(self._through) >= faults[0].at_records or is_patience_over):
                self._disturb(faults.pop(0))
                disturbed_s = now_s
            self._end_faults(now_s)
            self._check_members()
            if not faults and not self._ending and len(self._through) == plan.records:
                break
            if now_s - max(moved_s, disturbed_s) > STUCK_S:
                raise _Broken(
                    f"stuck: {len(self._through)} of {plan.records} records are through, {self._fed} were fed, "
                    f"nothing moved for {STUCK_S:g} s; missing: {self._missing()}"
                )
        self._producer.flush(30)
        self._stop_gracefully()

    def _feed(self) -> None:
        plan = self._plan
        topic = plan.stages[0].source
        allowed = min(plan.records, round((time.monotonic() - self._started_s) * plan.records_per_s))
        while self._fed < allowed and self._fed - len(self._through) < plan.window:
            key, sequence = plan.input_at(self._fed)
            value = json.dumps({"key": key, "sequence": sequence, "send_id": f"{FEEDER}:{self._fed}"}).encode()
            if is_malformed(plan.seed, key, sequence):
                value = value[:-1]
            wish = plan.wish_of(key, sequence)
            self._producer.send(
                Priorities(topic, ("urgent", "normal")) if wish.is_urgent else topic,
                value,
                key=key.encode(),
                deliver_after=wish.delay_s,
                expires_after=wish.expires_s,
                priority="urgent" if wish.is_urgent else None,
            )
            if plan.is_followed_by_a_cancelled_one(self._fed):
                self._schedule_and_cancel(topic, f"never-{self._fed}")
            self._fed += 1
        for key, (due_s, cancel) in list(self._cancels.items()):
            if cancel.done():
                cancel.result()
                self._cancelled[key] = due_s, time.time()
                del self._cancels[key]

    def _schedule_and_cancel(self, topic: str, key: str) -> None:
        value = json.dumps({"key": key, "sequence": 0, "send_id": f"{FEEDER}:{key}"}).encode()
        self._producer.send(topic, value, key=key.encode(), deliver_after=NEVER_S, schedule_id=key)
        self._cancels[key] = time.time() + NEVER_S, self._producer.cancel(key)

    def _watch(self) -> None:
        first = self._watcher.poll(0.02)
        if first is None:
            return
        for message in [first, *self._watcher.consume(1_000, 0)]:
            if message.error() is None:
                sent = _sent(message.partition(), message.offset(), message.value())
                if not sent.key.startswith("never-"):  # a cancel that came too late
                    self._through.add((sent.key, sent.sequence))

    def _missing(self) -> str:
        missing = [self._plan.input_at(index) for index in range(self._fed)]
        missing = [one for one in missing if one not in self._through]
        return ", ".join(f"{key} {sequence}" for key, sequence in missing[:8]) + (" ..." if len(missing) > 8 else "")

    # Members

    def _start_member(self, stage_name: str) -> Member:
        self._count += 1
        name = f"{stage_name}-{self._count}"
        before = sum(member.stage.name == stage_name for member in self.members)
        shell = self._plan.shells[before % len(self._plan.shells)]
        stage = self._plan.stage(stage_name)
        member = Member(name, shell, stage, self._plan, self._proxies.link(name), self._directory)
        self.members.append(member)
        self._note(f"{name} starts ({shell})")
        return member

    def _present(self, stage_name: str) -> list[Member]:
        return [
            member
            for member in self.members
            if member.stage.name == stage_name and not member.is_leaving and not member.is_killed
        ]

    def _check_members(self) -> None:
        now_s = time.time()
        for member in self.members:
            if member.is_killed:
                continue
            if not member.is_leaving and not member.is_alive:
                raise _Broken(f"{member.name} ended by itself with exit code {member.exit_code}")
            is_late = now_s - member.asked_to_leave_at_s > self._plan.drain_s + 30
            if member.is_leaving and member.is_alive and is_late:
                raise _Broken(f"{member.name} did not leave within {self._plan.drain_s:g} s + 30 s of SIGTERM")
            # Before the service takes signals, SIGTERM simply ends the command; nothing was begun.
            is_unborn = member.exit_code in (-signal.SIGTERM, 128 + signal.SIGTERM) and not member.has_begun
            if member.is_leaving and member.exit_code and not is_unborn:
                raise _Broken(f"{member.name} left with exit code {member.exit_code}")

    def _stop_gracefully(self) -> None:
        for member in self.members:
            if not member.is_leaving and not member.is_killed:
                member.ask_to_leave()
        self._note("everything is through; all are asked to leave")
        while any(member.is_alive for member in self.members):
            self._check_members()
            self._watcher.poll(0.02)
        self._check_members()

    def _end_members(self) -> None:
        for member in self.members:
            if member.is_alive:
                member.kill()

    def _close_producer(self) -> None:
        self._feeder.resume()
        self._producer.close(5)

    # Faults

    def _disturb(self, fault: Fault) -> None:
        if fault.stage == FEEDER:
            self._disturb_link(fault, FEEDER, self._feeder)
            return
        present = self._present(fault.stage)
        member = present[fault.choice % len(present)]
        match fault.kind:
            case Kind.JOIN:
                self._start_member(fault.stage)
            case Kind.REPLACE:
                self._note(f"{member.name} is asked to leave")
                member.ask_to_leave()
                self._start_member(fault.stage)
            case Kind.KILL:
                member.kill()
                self._incident("kill", member.name, time.time())
                self._note(f"{member.name} is killed")
                self._start_member(fault.stage)
            case _:
                self._disturb_link(fault, member.name, member.link)

    def _disturb_link(self, fault: Fault, name: str, link: Any) -> None:
        now_s = time.time()
        match fault.kind:
            case Kind.CUT:
                count = link.cut()
                self._incident("cut", name, now_s)
                self._note(f"{name}: {count} connections are cut")
            case Kind.DEAF:
                link.go_deaf()
                self._note(f"{name} hears no answers for {fault.duration_s:.2f} s")
                self._ending.append((time.monotonic() + fault.duration_s, fault, link, now_s))
            case Kind.STALL:
                link.stall()
                self._note(f"{name}: nothing passes for {fault.duration_s:.2f} s")
                self._ending.append((time.monotonic() + fault.duration_s, fault, link, now_s))
            case _:
                raise AssertionError(f"{fault.kind} is not a fault of a connection")

    def _end_faults(self, now_s: float) -> None:
        for ending in [one for one in self._ending if one[0] <= now_s]:
            self._ending.remove(ending)
            _, fault, link, from_s = ending
            if fault.kind is Kind.DEAF:
                count = link.cut()
                self._note(f"{link.name}: {count} connections are cut, answers pass again")
            else:
                link.resume()
                self._note(f"{link.name}: everything passes again")
            self._incident(fault.kind.value, link.name, from_s)

    def _incident(self, kind: str, member: str, from_s: float) -> None:
        self._incidents.append(Incident(kind=kind, member=member, from_s=from_s, until_s=time.time()))

    # The evidence

    def evidence(self) -> Evidence:
        plan = self._plan
        evidence = Evidence(incidents=list(self._incidents))
        source = plan.stages[0].source
        urgent = (source + URGENT,) if plan.has_wishes else ()
        for topic in (source, *urgent, *(stage.target for stage in plan.stages)):
            for record in self._read(topic):
                name, partition = _place(topic, record.partition)
                evidence.topics.setdefault(name, []).append(_sent(partition, record.offset, record.raw_value))
                end = evidence.log_ends.get((name, partition), 0)
                evidence.log_ends[name, partition] = max(end, record.offset + 1)
                due_ms = record.header_text("ottla-scheduled-due")
                if due_ms is not None:
                    evidence.due_s[partition, record.offset] = int(due_ms) / 1_000
        evidence.cancelled = dict(self._cancelled)
        for stage in plan.stages:
            evidence.dead[stage.name] = [_dead_letter(record) for record in self._read(stage.dead_letter_topic)]
            sources = (stage.source, *(urgent if stage.source == source else ()))
            retried = [
                retry_topic_name(topic, stage.group, number)
                for topic in sources
                for number in range(1, len(stage.retry_delays_s) + 1)
            ]
            for topic in retried:
                for record in self._read(topic):
                    original = original_of(record)
                    name_at = (stage.name, _place(original.topic, original.partition)[1], original.offset)
                    evidence.retried.setdefault(name_at, []).append(record.timestamp_ms / 1_000)
        for record in self._read("__consumer_offsets"):
            found = _commit(record.raw_key, record.raw_value)
            if found is not None:
                (group, topic, partition), offset, metadata = found
                commit = Committed(record.timestamp_ms / 1_000, offset, metadata)
                evidence.commits.setdefault((group, *_place(topic, partition)), []).append(commit)
        for member in self.members:
            written = list(read_journal(member.journal, member.name))
            deliveries = [one for one in written if isinstance(one, Delivery)]
            evidence.deliveries.setdefault(member.stage.name, []).extend(deliveries)
            evidence.add_events(
                [one for one in written if isinstance(one, MemberEvent)], plan.session_timeout_ms / 1_000
            )
        return evidence

    def _read(self, topic: str) -> list[Any]:
        with TopicReader(self._bootstrap, topic) as reader:
            return reader.read_to_end(timeout_s=60)

    def tell_everything(self) -> None:
        """What members wrote and said, into the transcript."""
        for member in self.members:
            for one in read_journal(member.journal, member.name):
                if isinstance(one, MemberEvent):
                    self._verdict.transcript.append((one.at_s, f"{member.name}: {one.event}"))
        now_s = time.time()
        for member in self.members:
            state = "killed" if member.is_killed else member.health()
            words = "".join(f"\n            | {line}" for line in member.last_words())
            self._verdict.transcript.append((now_s, f"{member.name} (pid {member.pid}): {state}{words}"))

    def _note(self, text: str) -> None:
        self._verdict.transcript.append((time.time(), f"[{len(self._through)} through] {text}"))


@contextmanager
def _cluster(directory: Path) -> Iterator[str]:
    """A broker in a process of its own, as its users run it."""
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 500,
        "group.consumer.min.session.timeout.ms": 500,
        "group.consumer.session.timeout.ms": 3_000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 500,
        "offsets.topic.num.partitions": 3,
    }
    command = [sys.executable, "-m", "broker_embedded", "--log-level", "warning"]
    command += ["--data-dir", str(directory / "data")]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ))
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if "bootstrap=" not in line:
            words = (directory / "broker.log").read_text(encoding="utf-8")
            raise RuntimeError(f"the broker did not start: {line!r} {words}")
        yield line.strip().partition("bootstrap=")[2]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _sent(partition: int, offset: int, value: bytes | None) -> Sent:
    text = (value or b"").decode()
    # A malformed input is a whole one without its last brace.
    body = json.loads(text if text.endswith("}") else text + "}")
    return Sent(partition, offset, body["key"], body["sequence"], body["send_id"])


def _place(topic: str, partition: int) -> tuple[str, int]:
    """Where the evidence has it: both priorities of a source are one topic."""
    if topic.endswith(URGENT):
        return topic.removesuffix(URGENT), partition + URGENT_PARTITIONS
    return topic, partition


def _dead_letter(record: Any) -> DeadLetter:
    sent = _sent(record.partition, record.offset, record.raw_value)
    view = describe_dead_letter(record.headers)
    return DeadLetter(sent.key, sent.sequence, view.kind if view is not None else "no dead letter")


def _commit(key: bytes, value: bytes | None) -> tuple[tuple[str, str, int], int, str] | None:
    """An offset commit of `__consumer_offsets`: key versions 0 and 1 are commits, 2 and up are groups."""
    (version,) = struct.unpack_from(">h", key)
    if version > 1 or value is None:
        return None
    group, at = _text(key, 2)
    topic, at = _text(key, at)
    (partition,) = struct.unpack_from(">i", key, at)
    value_version, offset = struct.unpack_from(">hq", value)
    metadata, _ = _text(value, 14 if value_version >= 3 else 10)
    return (group, topic, partition), offset, metadata


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size
