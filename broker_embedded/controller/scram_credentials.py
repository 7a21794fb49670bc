"""SCRAM credentials of users (KIP-554): which changes are possible, as records. As Kafka's ScramControlManager."""

from __future__ import annotations

from collections.abc import Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.partition_requests import Outcome
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import MetadataRecord, RemoveUserScramCredential, ScramMechanism
from broker_embedded.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, credential_of_salted
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode


@fact
class ScramDeletion:
    """A user's credential for one mechanism is to go. The number of the mechanism is not checked yet."""

    name: str
    mechanism: int


@fact
class ScramUpsertion:
    """A user is to have this credential: the client has salted the password."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


def alter(
    image: ClusterImage, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
) -> tuple[list[MetadataRecord], dict[str, Outcome]]:
    """Return the records of valid alterations, and the outcome of every user. A request alters a user once."""
    records: dict[str, MetadataRecord] = {}
    outcomes: dict[str, Outcome] = {}
    changes: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    for change in changes:
        name = change.name
        if name in outcomes:
            if outcomes[name] is None:
                del records[name]
                outcomes[name] = BrokerError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            continue
        try:
            records[name] = _delete(image, change) if isinstance(change, ScramDeletion) else _upsert(change)
            outcomes[name] = None
        except BrokerError as error:
            outcomes[name] = error
    return list(records.values()), outcomes


def _delete(image: ClusterImage, change: ScramDeletion) -> MetadataRecord:
    mechanism = _mechanism(change)
    if (change.name, mechanism) not in image.scram_credentials:
        raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredential(name=change.name, mechanism=mechanism)


def _upsert(change: ScramUpsertion) -> MetadataRecord:
    mechanism = _mechanism(change)
    if change.iterations < MIN_ITERATIONS:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return credential_of_salted(
        change.name,
        mechanism,
        salted_password=change.salted_password,
        salt=change.salt,
        iterations=change.iterations,
    )


def _mechanism(change: ScramDeletion | ScramUpsertion) -> ScramMechanism:
    if not change.name:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    try:
        return ScramMechanism(change.mechanism)
    except ValueError:
        raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
