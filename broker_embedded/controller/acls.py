"""ACLs: which can be created and which are deleted, as records. As Kafka's AclControlManager."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.features import NETWORKS_IN_ACLS, has_networks_in_acls
from broker_embedded.controller.partition_requests import Outcome
from broker_embedded.metadata.acls import (
    ANYBODY,
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    network_of,
)
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import AccessControlEntry, MetadataRecord, RemoveAccessControlEntry
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

MAX_DELETED = 10_000
"""Kafka's limit of records for one request."""

Deleted = list[AclBinding] | BrokerError
"""The ACLs that one filter deleted, or why it could not be used."""


@fact
class NewAcl:
    """An ACL as it came: its numbers may mean nothing."""

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


def create(
    image: ClusterImage, wanted: Sequence[NewAcl], *, new_id: Callable[[], bytes]
) -> tuple[list[MetadataRecord], list[Outcome]]:
    """Return the records of the ACLs that can be created, and each outcome. An existing ACL is no error."""
    existing = set(image.acls.values())
    records: list[MetadataRecord] = []
    outcomes: list[Outcome] = []
    for each in wanted:
        try:
            acl = _checked(each)
            _check_host(image, acl.host)
        except BrokerError as error:
            outcomes.append(error)
            continue
        outcomes.append(None)
        if acl not in existing:
            existing.add(acl)
            records.append(AccessControlEntry(acl_id=new_id(), acl=acl))
    return records, outcomes


def delete(image: ClusterImage, filters: Sequence[AclFilter]) -> tuple[list[MetadataRecord], list[Deleted]]:
    """Return the records that delete the matches of the filters, and the matches of each filter."""
    doomed: dict[bytes, None] = {}
    results: list[Deleted] = []
    for wanted in filters:
        if not wanted.is_understood:
            results.append(_invalid("the filter has a number that means nothing"))
            continue
        found = {acl_id: acl for acl_id, acl in image.acls.items() if wanted.matches(acl)}
        if len(doomed.keys() | found.keys()) > MAX_DELETED:
            results.append(_invalid(f"one request deletes {MAX_DELETED} ACLs at most"))
            continue
        doomed.update(dict.fromkeys(found))
        results.append(list(found.values()))
    return [RemoveAccessControlEntry(acl_id=acl_id) for acl_id in doomed], results


def _checked(wanted: NewAcl) -> AclBinding:
    """Return the ACL. Raises INVALID_REQUEST for an invalid one."""
    if wanted.pattern == PatternType.MATCH:
        raise _invalid("Invalid patternType MATCH")
    try:
        acl = AclBinding(
            resource=AclResource(wanted.resource),
            name=wanted.name,
            pattern=PatternType(wanted.pattern),
            principal=wanted.principal,
            host=wanted.host,
            operation=AclOperation(wanted.operation),
            permission=Permission(wanted.permission),
        )
    except ValueError as error:  # ANY, or no number of Kafka's
        raise _invalid(f"the ACL has a number that means nothing in it: {error}") from None
    if acl.resource is AclResource.CLUSTER and acl.name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise _invalid("Invalid empty resource name")
    if ":" not in acl.principal:  # either side may be empty, as in Kafka
        raise _invalid(f"principal: found {acl.principal!r}, wanted KIND:NAME, as in User:alice or {ANYBODY}")
    return acl


def _check_host(image: ClusterImage, host: str) -> None:
    """Check that a network is valid; an address is accepted unchanged, as in Kafka."""
    if not host:
        raise _invalid("Host pattern cannot be null or empty")
    if "/" not in host:
        return
    if not has_networks_in_acls(image):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"CIDR-based ACL host patterns require metadata version {NETWORKS_IN_ACLS} (4.4-IV1) or higher.",
        )
    if network_of(host) is None:
        raise _invalid(f"Invalid CIDR notation '{host}': wanted ADDRESS/BITS, as in 10.0.0.0/8 or fd00::/8")


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
