"""ACLs, and the filters of DescribeAcls and DeleteAcls. Enums use the values of the protocol and the metadata log.
`security.authorizer` decides what an ACL means for a request."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from ottla_wire.facts import fact

UNKNOWN = 0
ANY = 1
"""In a filter, for every one of its enums."""

WILDCARD = "*"
"""Wildcard of a host, or of a literal pattern's name."""
ANYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only resource of its kind."""


class AclResource(IntEnum):
    """Types of protected resources."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a name is meant (KIP-290). MATCH is for filters: whatever concerns the resource of this name."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operations on a resource."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """Whether an ACL allows or denies."""

    DENY = 2
    ALLOW = 3


@lru_cache(maxsize=4096)
def network_of(host: str) -> IPv4Network | IPv6Network | None:
    """Return the network of an ACL's host, ADDRESS/BITS; None for an address. Host bits are ignored."""
    _, slash, bits = host.partition("/")
    if not slash or not bits.isdecimal() or not bits.isascii() or len(bits) > 3 or "%" in host:
        return None
    try:
        return ip_network(host, strict=False)
    except ValueError:
        return None


@fact
class AclBinding:
    """A principal, coming from a host, may or may not do something to the resources that a pattern matches."""

    resource: AclResource
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def fields(self) -> dict[str, int | str]:
        """Return it as messages have it."""
        return {
            "resource_type": int(self.resource),
            "resource_name": self.name,
            "pattern_type": int(self.pattern),
            "principal": self.principal,
            "host": self.host,
            "operation": int(self.operation),
            "permission_type": int(self.permission),
        }

    def is_from(self, host: str) -> bool:
        """Return whether the ACL's host matches `address`."""
        if self.host in (WILDCARD, host):
            return True
        network = network_of(self.host) if "/" in self.host else None
        return network is not None and _is_within(host, network)


def _is_within(host: str, network: IPv4Network | IPv6Network) -> bool:
    try:
        return ip_address(host) in network
    except ValueError:
        return False


@fact
class AclFilter:
    """Chooses ACLs; None and ANY match all. The numbers come from clients and may be invalid."""

    resource: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    @property
    def is_understood(self) -> bool:
        """Return whether every number in it is valid."""
        chosen = (
            (self.resource, AclResource),
            (self.pattern, PatternType),
            (self.operation, AclOperation),
            (self.permission, Permission),
        )
        return all(number == ANY or number in meanings._value2member_map_ for number, meanings in chosen)

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.resource in (ANY, acl.resource)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern not in (ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern != PatternType.MATCH:
            return False
        return self.name.startswith(acl.name) if acl.pattern is PatternType.PREFIXED else acl.name == WILDCARD
