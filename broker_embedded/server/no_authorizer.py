"""What every request about ACLs is answered with: there is no authorizer, as on a Kafka broker without one."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from ottla_wire.protocol import ErrorCode

REFUSED: Final = MappingProxyType(
    {"error_code": int(ErrorCode.SECURITY_DISABLED), "error_message": "No Authorizer is configured."}
)
"""The error fields of a result."""
