"""Errors of bytes received from or sent to a broker, sorted by what to do, as in `ottla.errors`."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.errors import AuthenticationError, BrokerTooOld, ConfigError, InputError, OttlaError, RetriableError
from ottla.topics import TopicPartition
from ottla_wire.protocol import ErrorCode


class CorruptBatch(OttlaError):
    """Do not skip it silently: a record batch does not hold what its header promises. The message has the position."""


class DecodeLimitExceeded(InputError):
    """Raise the limit that the message names, or read on behind the offset it names: the batch is larger than that."""


class BrokerRefused(InputError):
    """Fix the cause of the refusal: authorization, configuration or version; a retry is refused the same way."""


class PartitionsRefused(BrokerRefused, has_page=False):
    """Fix what the broker refused, or leave these partitions out: a transaction may not write to them."""

    def __init__(self, partitions: Mapping[TopicPartition, ErrorCode]) -> None:
        self.partitions = dict(partitions)
        shown = ", ".join(f"{place} {code.name}" for place, code in list(self.partitions.items())[:5])
        super().__init__(f"the broker refused {shown}")


class ApiNotServed(BrokerRefused, has_page=False):
    """Do without: the broker does not serve an API in a version that this client speaks."""


class ApiTooOld(BrokerTooOld, ApiNotServed, has_page=False):
    """Do without, or upgrade the broker: it serves an API not yet, or only in versions from before this client."""


class BatchRefused(BrokerRefused, has_page=False):
    """Change the records: the broker does not take them, whatever is tried. `is_too_large` says that size is why."""

    def __init__(self, text: str, *, is_too_large: bool = False) -> None:
        self.is_too_large = is_too_large
        super().__init__(text)


class Forbidden(BrokerRefused, has_page=False):
    """Allow what the message names: the principal lacks the ACL."""


class WriteForbidden(BrokerRefused, ConfigError, has_page=False):
    """Allow what the message names: the principal may not write there, or not in transactions."""


class AuthenticationRefused(BrokerRefused, AuthenticationError, has_page=False):
    """Fix the password, user, mechanism or certificate: broker and client do not accept each other."""


class ResponseTooLarge(InputError, has_page=False):
    """Ask for less, or raise `receive.message.max.bytes`: a broker's response is larger."""


class PartitionUnavailable(RetriableError):
    """Try again later: a partition had no reachable leader for the whole time given."""


class OffsetOutOfRange(InputError, LookupError):
    """Choose another start: the offset is no longer, or not yet, in the partition. The message has the range."""

    def __init__(self, *, topic: str, partition: int, wanted: int, earliest: int, latest: int) -> None:
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        """The offset that was asked for."""
        self.earliest = earliest
        """The first offset in the partition."""
        self.latest = latest
        """The offset that the next record will get."""
        super().__init__(
            f"{topic}-{partition}: offset {wanted} was asked for, but the partition holds {earliest} to {latest}"
            " (retention, DeleteRecords or a recreated topic may have removed it)"
        )


class TopicRecreated(InputError):
    """Start again from offsets of the new topic: the topic was deleted and created again."""


def group_protocol_refused(problem: str) -> BrokerTooOld:
    """Return the error for ``group.protocol=consumer`` (KIP-848). `problem` says who refuses it."""
    return BrokerTooOld(
        f"group.protocol: found consumer, but {problem}, wanted Kafka 4.0 or newer that allows it "
        "(group.coordinator.rebalance.protocols), or group.protocol=classic"
    )
