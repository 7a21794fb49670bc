"""A message on its way into Kafka: mapped, checked, sent, and what its publisher is to be answered.

- Kafka acknowledged the record: success.
- The payload does not fit its serde: dead letter, then success; without a dead letter topic a refusal.
- No rule matches, or Kafka refuses the record (too large, no such topic, no permission): a publisher that understands
  refusals gets one. For any other a dead letter, then success.
- Anything else is `UNKNOWN`: it must not be acknowledged, and its connection ends, so that it is sent again. So is a
  dead letter that was not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ottla.bridge.acknowledger import UNKNOWN
from ottla.bridge.forwarding.counts import BridgeCounts
from ottla.bridge.forwarding.sink import Sink
from ottla.bridge.inbound_message import Message
from ottla.bridge.mapping.record_headers import headers_of
from ottla.bridge.mapping.rules import OutRecord, Refusal, Target, TopicMapping
from ottla.bridge.mqtt.codes import Reason
from ottla.clock import Clock, SystemClock
from ottla.errors import ConfigError, InputError, OttlaError, UnknownTopic
from ottla.failures.dead_letter import DeadLetterReason, DeadLetterRecord, Form, build_dead_letter, forms_of
from ottla.telemetry import log_event

Settle = Callable[[int, str], None]
"""Called with a reason code (0 for success) and a text."""

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
        self._sink = sink
        self._road = road
        self._counts = counts
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

    def forward(self, message: Message, settle: Settle | None, *, understands_refusals: bool) -> None:
        """Send the message. `settle` is called once, in this thread: now or when Kafka has answered."""
        target = self.mapping.target_of(message)
        if isinstance(target, Refusal):
            self._refused(message, None, target, settle, understands_refusals=understands_refusals)
            return
        record = self.mapping.record_of(message, target, self._now_ms())
        if isinstance(record, Refusal):
            # Its publisher cannot repair it by sending it again: where there is a dead letter topic, it is done.
            self._refused(message, target, record, settle, understands_refusals=self.dead_letter_topic is None)
            return

        def done(error: OttlaError | None) -> None:
            if error is None:
                self._counts.acknowledged += 1
                if settle is not None:
                    settle(0, "")
            elif isinstance(error, InputError):
                refusal = Refusal(kind="failed", error_type=type(error).__name__, text=str(error), rule=target.rule)
                code = _code_of(error)
                self._refused(message, target, refusal, settle, understands_refusals=understands_refusals, code=code)
            else:
                self._unknown(settle, f"{type(error).__name__}: {error}")

        self._sink.send(record, done)

    def _refused(
        self,
        message: Message,
        target: Target | None,
        refusal: Refusal,
        settle: Settle | None,
        *,
        understands_refusals: bool,
        code: Reason | None = None,
    ) -> None:
        if code is None:
            code = Reason.TOPIC_NAME_INVALID if target is None else Reason.PAYLOAD_FORMAT_INVALID
        fields = {"road": self._road, "source": message.topic[:200], "error": refusal.text, "code": f"{code:#04x}"}
        if self.dead_letter_topic is not None and not (understands_refusals and settle is not None):
            dead = self._dead_letter(message, target, refusal)
            self._write(forms_of(dead), settle, None)
            log_event("bridge_message_dead_lettered", "warning", {**fields, "topic": self.dead_letter_topic})
            return
        self._counts.refused += 1
        log_event("bridge_message_refused", "warning", fields)
        if settle is not None:
            settle(code, refusal.text)

    def _unknown(self, settle: Settle | None, text: str) -> None:
        log_event("bridge_message_not_written", "warning", {"road": self._road, "error": text})
        if settle is not None:
            settle(UNKNOWN, text)

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
        self, forms: Iterator[tuple[Form, DeadLetterRecord]], settle: Settle | None, refusal: OttlaError | None
    ) -> None:
        """Write the next form of a dead letter. One without the value is none here: the payload is nowhere else."""
        form, record = next(forms, (None, None))
        if form is None or record is None or form.is_claim:
            self._unknown(settle, f"{self.dead_letter_topic}: {refusal}")
            return

        def done(error: OttlaError | None) -> None:
            if error is None:
                self._counts.dead_lettered += 1
                if settle is not None:
                    settle(0, "")
            elif isinstance(error, InputError) and error.is_too_large:
                self._write(forms, settle, error)
            else:
                self._unknown(settle, f"{self.dead_letter_topic}: {type(error).__name__}: {error}")

        topic = self.dead_letter_topic
        assert topic is not None
        self._sink.send(OutRecord(topic, record.key, record.value or b"", record.headers), done)


def _code_of(error: InputError) -> Reason:
    if isinstance(error, UnknownTopic):
        return Reason.TOPIC_NAME_INVALID
    if error.is_too_large:
        return Reason.PAYLOAD_FORMAT_INVALID
    return Reason.NOT_AUTHORIZED if isinstance(error, ConfigError) else Reason.IMPLEMENTATION_ERROR
