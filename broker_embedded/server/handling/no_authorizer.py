"""Errors of requests about ACLs on a broker without an authorizer. Kafka has two texts, and so has this broker.

Each call makes a new error: an error that is raised again keeps the frames of all requests that raised it.
"""

from __future__ import annotations

from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode


def nothing_to_describe() -> BrokerError:
    """Return the answer to DescribeAcls."""
    return BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


def nothing_to_change() -> BrokerError:
    """Return the answer to CreateAcls and DeleteAcls."""
    return BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
