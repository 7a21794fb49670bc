"""Names of spans and attributes: OpenTelemetry's conventions for messaging and Kafka, version 1.45, and ours.

All of the messaging conventions are in development, and 1.45 renamed some. `RENAMED` has both columns.
`OTEL_SEMCONV_STABILITY_OPT_IN=messaging/dup` sets both names. `messaging.system` is always set beside its new name:
backends recognise messaging spans by it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

SCOPE: Final = "ottla"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.45.0"

SYSTEM: Final = "messaging.system.name"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
GROUP: Final = "messaging.consumer.group.name"
CLIENT_ID: Final = "messaging.client.id"
BATCH_SIZE: Final = "messaging.batch.message_count"
OFFSET: Final = "kafka.offset"
KEY: Final = "kafka.message.key"
TOMBSTONE: Final = "kafka.message.tombstone"
ERROR_TYPE: Final = "error.type"

HANDLER: Final = "ottla.handler"
ATTEMPT: Final = "ottla.attempt"
OUTCOME: Final = "ottla.outcome"

SEND: Final = "send"
PROCESS: Final = "process"
RECEIVE: Final = "receive"

RENAMED: Final[Mapping[str, str]] = {
    SYSTEM: "messaging.system",
    OFFSET: "messaging.kafka.offset",
    KEY: "messaging.kafka.message.key",
    TOMBSTONE: "messaging.kafka.message.tombstone",
}
"""Name in 1.45 → name in 1.44."""

ATTRIBUTES: Final[Mapping[str, str]] = {
    SYSTEM: "`kafka`, also under `messaging.system`",
    OPERATION: "`send`, `process` or `receive`",
    OPERATION_TYPE: "the same",
    DESTINATION: "the topic",
    PARTITION: "the partition, as text",
    GROUP: "the consumer group",
    CLIENT_ID: "`client.id`, where it is set",
    BATCH_SIZE: "how many records a span covers, where it covers several",
    OFFSET: "the record's offset; of a batch the first",
    TOMBSTONE: "true where the value is null",
    KEY: "the key as text; only after `ottla.configure_tracing(record_keys=True)`",
    ERROR_TYPE: "the class of the error that ended the operation",
    HANDLER: "the handler's name",
    ATTEMPT: "which delivery of the record it is, from 1",
    OUTCOME: "the handler's outcome, where it did not simply return: `retry`, `dead`, `skip` or `raised`",
}
"""Every attribute that a span of Ottla's may have."""


def base_attributes(operation: str, topic: str, **more: str | int | None) -> dict[str, str | int | bool]:
    """Return what every span has. `more` are `GROUP`, `PARTITION`, ... under their names here; None is left out."""
    return {
        SYSTEM: "kafka",
        RENAMED[SYSTEM]: "kafka",
        OPERATION: operation,
        OPERATION_TYPE: operation,
        DESTINATION: topic,
        **{globals()[name]: value for name, value in more.items() if value is not None},
    }


def sets_both_names(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the names of 1.44 are wanted too."""
    chosen = environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "")
    return "messaging/dup" in {part.strip() for part in chosen.split(",")}


def with_old_names(attributes: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    """Return the attributes under both names."""
    return {**attributes, **{RENAMED[name]: value for name, value in attributes.items() if name in RENAMED}}
