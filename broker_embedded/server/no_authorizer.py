"""What requests about ACLs are answered with: there is no authorizer. The texts are Kafka's, which has two."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ottla_wire.protocol import ErrorCode


def _refused(message: str) -> Mapping[str, object]:
    """The error fields of a result."""
    return MappingProxyType({"error_code": int(ErrorCode.SECURITY_DISABLED), "error_message": message})


NOTHING_TO_DESCRIBE: Final = _refused("No Authorizer is configured on the broker")
NOTHING_TO_CHANGE: Final = _refused("No Authorizer is configured.")
