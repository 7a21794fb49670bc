"""What requests about ACLs are answered with where there is no authorizer. The texts are Kafka's, which has two."""

from __future__ import annotations

from typing import Final

from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode

NOTHING_TO_DESCRIBE: Final = BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
NOTHING_TO_CHANGE: Final = BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
