"""What requests about ACLs are answered with where there is no authorizer. The texts are Kafka's, which has two.

A new error each time: one object that is raised again keeps the frames of all the requests that raised it.
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
