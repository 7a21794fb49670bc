"""The bit fields of authorized operations on a resource (KIP-430): all of them without an authorizer."""

from __future__ import annotations

from broker_embedded.metadata.acls import AclOperation


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_O = AclOperation
TOPIC_OPERATIONS = _bits(
    _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS
)
CLUSTER_OPERATIONS = _bits(
    _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE
)
GROUP_OPERATIONS = _bits(_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)

NOT_ASKED = -(2**31)
"""The field's value if the client did not request it."""
