"""Response and log entry for a request that is not allowed."""

from __future__ import annotations

import logging

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.acls import AclOperation, AclResource
from broker_embedded.security.authorizer import Rights
from ottla_wire.protocol import ErrorCode

log = logging.getLogger(__name__)

_CODES = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def require(rights: Rights, operation: AclOperation, resource: AclResource, name: str) -> None:
    """Raise the error of this kind of resource if the operation is not allowed."""
    if not rights.allows(operation, resource, name):
        raise refusal(rights, operation, resource, name)


def refusal(rights: Rights, operation: AclOperation, resource: AclResource, name: str) -> BrokerError:
    """Return the client's error, and log which client was refused which operation."""
    kind = resource.name.lower().replace("_", " ")
    what = f"{rights.principal} at {rights.host} may not {operation.name} {kind} {name}"
    log.info("denied: %s", what)
    return BrokerError(_CODES[resource], f"{what}: no ACL allows it, or one denies it")
