"""A message on its way into Kafka: mapped, checked, sent, and what its publisher is to be answered.

- Kafka acknowledged the record: success.
- The payload does not fit its serde: dead letter, then success; without a dead letter topic a refusal.
- No rule matches, or Kafka refuses the record (too large, no such topic, no permission): a publisher that understands
  refusals gets one. For any other a dead letter, then success.
- Anything else is `UNKNOWN`: it must not be acknowledged, and its connection ends, so that it is sent again. So is a
  dead letter that was not written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from ottla.bridge.acknowledger import UNKNOWN, Answer
from ottla.bridge.forwarding.counts import BridgeCounts
from ottla.bridge.forwarding.sink import Outbound, Sink
from ottla.bridge.inbound_message import Message
from ottla.bridge.mapping.record_headers import headers_of
from ottla.bridge.mapping.rules import Refusal, Target, TopicMapping
from ottla.bridge.mqtt.codes import Reason
from ottla.clock import Clock, SystemClock
from ottla.errors import ConfigError, InputError, OttlaError, RegistryUnavailable, SerializationError, UnknownTopic
from ottla.failures.dead_letter import DeadLetterReason, DeadLetterRecord, Form, build_dead_letter, forms_of
from ottla.producer.encoded import checked_headers
from ottla.telemetry import log_event

REGISTRY_AGAIN_S: Final = 1.0
"""Seconds until a schema registry that did not answer is asked again."""

_NOWHERE: Final = -1
_UNMAPPED: Final = "unmapped"


class Forwarder:
    """Forwards the messages of one road, in its thread."""

    def __init__(
        self,
        mapping: TopicMapping,
        sink: Sink,
        *,
        dead_letter_topic: str | None,
        road: str,
        counts: BridgeCounts,
        clock: Clock | None = None,
    ) -> None:
        self.mapping = mapping
        """Replaced as a whole when settings are read again."""
        self.dead_letter_topic = dead_letter_topic
        self.sink = sink
        self._road = road
        self.counts = counts
        self._now_ms = (clock or SystemClock()).now_ms

    def would_block(self, message: Message) -> bool:
        """Return whether checking the payload would wait for a schema registry."""
        target = self.mapping.target_of(message)
        if isinstance(target, Refusal) or target.check is None:
            return False
        return target.check.would_block([message.payload], target.context)

    def check(self, message: Message) -> None:
        """Check the payload, in any thread. Raises `RegistryUnavailable`."""
        target = self.mapping.target_of(message)
        if isinstance(target, Target):
            self.mapping.record_of(message, target, self._now_ms())

    async def await_schema(self, message: Message, is_over: Callable[[], bool]) -> None:
        """Check the payload in a thread, again while the registry does not answer, until `is_over`."""
        while not is_over():
            try:
                await asyncio.to_thread(self.check, message)
            except RegistryUnavailable as error:
                log_event("bridge_registry_awaited", "warning", {"error": str(error)})
                await asyncio.sleep(REGISTRY_AGAIN_S)
            else:
                return

    def forward(self, message: Message, answer: Answer | None, *, understands_refusals: bool) -> None:
        """Send the message. `answer` is settled once, in this thread: now or when Kafka has answered."""
        mapping = self.mapping
        target = mapping.target_of(message)
        if isinstance(target, Refusal):
            self._refused(message, None, target, answer, understands_refusals=understands_refusals)
            return
        if target.check is not None:
            refusal = mapping.refusal_of(message, target)
            if refusal is not None:
                # Its publisher cannot repair it by sending it again: where there is a dead letter topic, it is done.
                self._refused(message, target, refusal, answer, understands_refusals=self.dead_letter_topic is None)
                return
        record = _Forwarded(self, message, target, answer, understands_refusals)
        if message.is_plain:
            headers, most_bytes = target.headers, target.most_bytes
        else:
            given = headers_of(message, target.headers, self._now_ms())
            try:
                headers, most_bytes = checked_headers(target.topic, target.key, given)
            except SerializationError as error:  # a name that Kafka's clients do not take
                record.failed(error)
                return
        self.sink.send(record, message.payload, headers, most_bytes + len(message.payload))

    def refuse_malformed(self, message: Message, problem: str, answer: Answer) -> None:
        """Send the message to the dead letter topic, as it cannot become a record. `answer` is settled once."""
        refusal = Refusal(kind="malformed", error_type="Malformed", text=problem)
        self._refused(message, None, refusal, answer, understands_refusals=False)

    def _refused(
        self,
        message: Message,
        target: Target | None,
        refusal: Refusal,
        answer: Answer | None,
        *,
        understands_refusals: bool,
        code: Reason | None = None,
    ) -> None:
        if code is None:
            code = Reason.TOPIC_NAME_INVALID if target is None else Reason.PAYLOAD_FORMAT_INVALID
        fields = {"road": self._road, "source": message.topic[:200], "error": refusal.text, "code": f"{code:#04x}"}
        if self.dead_letter_topic is not None and not (understands_refusals and answer is not None):
            dead = self._dead_letter(message, target, refusal)
            self._write(forms_of(dead), answer, None)
            log_event("bridge_message_dead_lettered", "warning", {**fields, "topic": self.dead_letter_topic})
            return
        self.counts.refused += 1
        log_event("bridge_message_refused", "warning", fields)
        if answer is not None:
            answer.settle(code, refusal.text)

    def _unknown(self, answer: Answer | None, text: str) -> None:
        log_event("bridge_message_not_written", "warning", {"road": self._road, "error": text})
        if answer is not None:
            answer.settle(UNKNOWN, text)

    def _dead_letter(self, message: Message, target: Target | None, refusal: Refusal) -> DeadLetterRecord:
        now_ms = self._now_ms()
        before = [("mqtt-topic", message.topic.encode())] if target is None else list(target.headers)
        reason = DeadLetterReason(
            kind=refusal.kind,
            error_type=refusal.error_type,
            message=refusal.text,
            group=f"ottla-bridge-{self._road}",
            first_failure_ms=now_ms,
            dead_lettered_ms=now_ms,
        )
        return build_dead_letter(
            topic=_UNMAPPED if target is None else target.topic,
            partition=_NOWHERE,
            offset=_NOWHERE,
            timestamp_ms=now_ms,
            key=message.topic.encode() if target is None else target.key,
            value=message.payload,
            headers=headers_of(message, before, now_ms),
            reason=reason,
        )

    def _write(
        self, forms: Iterator[tuple[Form, DeadLetterRecord]], answer: Answer | None, refusal: OttlaError | None
    ) -> None:
        """Write the next form of a dead letter. One without the value is none here: the payload is nowhere else."""
        form, letter = next(forms, (None, None))
        if form is None or letter is None or form.is_claim:
            self._unknown(answer, f"{self.dead_letter_topic}: {refusal}")
            return
        topic = self.dead_letter_topic
        assert topic is not None
        value = letter.value or b""
        try:
            headers, most_bytes = checked_headers(topic, letter.key, letter.headers)
        except SerializationError as error:
            self._unknown(answer, f"{topic}: {error}")
            return
        self.sink.send(_DeadLetter(self, topic, letter.key, forms, answer), value, headers, most_bytes + len(value))


class _Forwarded(Outbound):
    """The record of a message."""

    __slots__ = ("_answer", "_forwarder", "_message_sent", "_target", "_understands_refusals")

    def __init__(
        self,
        forwarder: Forwarder,
        message: Message,
        target: Target,
        answer: Answer | None,
        understands_refusals: bool,
    ) -> None:
        super().__init__(forwarder.sink, target.topic, target.key)
        self._forwarder = forwarder
        self._message_sent = message
        self._target = target
        self._answer = answer
        self._understands_refusals = understands_refusals

    def acknowledged(self) -> None:
        self._forwarder.counts.acknowledged += 1
        if self._answer is not None:
            self._answer.settle(0)

    def failed(self, error: OttlaError) -> None:
        if not isinstance(error, InputError):
            self._forwarder._unknown(self._answer, f"{type(error).__name__}: {error}")
            return
        refusal = Refusal(kind="failed", error_type=type(error).__name__, text=str(error), rule=self._target.rule)
        self._forwarder._refused(
            self._message_sent,
            self._target,
            refusal,
            self._answer,
            understands_refusals=self._understands_refusals,
            code=_code_of(error),
        )


class _DeadLetter(Outbound):
    """One form of a dead letter. A smaller form follows one that is too large."""

    __slots__ = ("_answer", "_forms", "_forwarder")

    def __init__(
        self,
        forwarder: Forwarder,
        topic: str,
        key: bytes | None,
        forms: Iterator[tuple[Form, DeadLetterRecord]],
        answer: Answer | None,
    ) -> None:
        super().__init__(forwarder.sink, topic, key)
        self._forwarder = forwarder
        self._forms = forms
        self._answer = answer

    def acknowledged(self) -> None:
        self._forwarder.counts.dead_lettered += 1
        if self._answer is not None:
            self._answer.settle(0)

    def failed(self, error: OttlaError) -> None:
        if isinstance(error, InputError) and error.is_too_large:
            self._forwarder._write(self._forms, self._answer, error)
        else:
            self._forwarder._unknown(self._answer, f"{self.topic}: {type(error).__name__}: {error}")


def _code_of(error: InputError) -> Reason:
    if isinstance(error, UnknownTopic):
        return Reason.TOPIC_NAME_INVALID
    if error.is_too_large:
        return Reason.PAYLOAD_FORMAT_INVALID
    return Reason.NOT_AUTHORIZED if isinstance(error, ConfigError) else Reason.IMPLEMENTATION_ERROR
