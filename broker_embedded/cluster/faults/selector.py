"""Selects the requests that a fault concerns. Every named field must match; a field that is left out matches
anything."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from broker_embedded.cluster.faults.subject import Subject
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey
from ottla_wire.protocol.message import Message

Predicate = Callable[[Message], bool]


class InvalidFault(ValueError):
    """An invalid fault: the message names the value found and the value wanted."""


class RequestSource(Enum):
    """Sender of a request."""

    CLIENTS = "clients"
    """Clients of the cluster, also where a broker passed their request on to the controller."""
    BROKERS = "brokers"
    """The brokers themselves: follower fetches, heartbeats, ISR changes, the quorum's votes."""
    ANY = "any"


@fact
class Selector:
    """See the module. `client_id` may be a shell pattern (`billing-*`), the other names are exact."""

    api: ApiKey | None = None
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    source: RequestSource = RequestSource.CLIENTS
    predicate: Predicate | None = None
    """Sees the decoded request, on the cluster's thread."""

    def __post_init__(self) -> None:
        if self.partition is not None and self.topic is None:
            raise InvalidFault(f"partition: found {self.partition} without a topic, wanted both")
        if self.partition is not None and self.partition < 0:
            raise InvalidFault(f"partition: found {self.partition}, wanted 0 or more")

    @property
    def names_partitions(self) -> bool:
        """Return whether it selects some of a request's topics, so that the others get real results."""
        return self.topic is not None

    @property
    def names_groups(self) -> bool:
        return self.group is not None or self.transactional_id is not None

    def matches_sender(self, subject: Subject) -> bool:
        """Return whether sender, broker and API match, without topic, partition, group and transactional id."""
        return (
            (self.api is None or self.api == subject.api)
            and (self.broker is None or self.broker == subject.broker)
            and (self.source is RequestSource.ANY or (self.source is RequestSource.BROKERS) == subject.is_from_broker)
            and (self.client_id is None or fnmatchcase(subject.client_id or "", self.client_id))
            and (self.predicate is None or bool(self.predicate(subject.request)))
        )

    def matches_names(self, subject: Subject) -> bool:
        """Return whether the request names the topic, partition, group and transactional id."""
        return self.matches_groups(subject) and (
            self.topic is None or subject.mentions_partition(self.topic, self.partition)
        )

    def matches_groups(self, subject: Subject) -> bool:
        return (self.group is None or self.group in subject.groups) and (
            self.transactional_id is None or self.transactional_id in subject.transactional_ids
        )

    def matches_partition(self, topic: str | None, partition: int | None) -> bool:
        """Return whether it selects the partition; None stands for the topic as a whole."""
        return (self.topic is None or self.topic == topic) and (self.partition is None or self.partition == partition)

    def to_json(self) -> dict[str, Any]:
        """Return the named fields, as the control API shows them."""
        named: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("broker", "topic", "partition", "group", "transactional_id", "client_id")
            if getattr(self, name) is not None
        }
        if self.api is not None:
            named["api"] = self.api.name
        if self.source is not RequestSource.CLIENTS:
            named["source"] = self.source.value
        if self.predicate is not None:
            named["predicate"] = getattr(self.predicate, "__qualname__", repr(self.predicate))
        return named


def parse_api(value: ApiKey | str | int) -> ApiKey:
    """Parse `PRODUCE`, `ListOffsets`, `list-offsets` or 2."""
    if isinstance(value, int):
        try:
            return ApiKey(value)
        except ValueError:
            raise InvalidFault(f"api: found {value}, which is no API key of Kafka") from None
    by_letters = {key.name.replace("_", ""): key for key in ApiKey}
    letters = "".join(character for character in value if character.isalnum()).upper()
    if letters in by_letters:
        return by_letters[letters]
    raise InvalidFault(f"api: found {value!r}, wanted the name of an API{_did_you_mean(letters, by_letters)}")


def parse_source(value: RequestSource | str) -> RequestSource:
    try:
        return RequestSource(value)
    except ValueError:
        known = ", ".join(each.value for each in RequestSource)
        raise InvalidFault(f"source: found {value!r}, wanted one of {known}") from None


def _did_you_mean(found: str, known: dict[str, ApiKey]) -> str:
    import difflib

    close = difflib.get_close_matches(found, known, n=1)
    return f"; did you mean {known[close[0]].name}?" if close else ", such as PRODUCE or LIST_OFFSETS"
