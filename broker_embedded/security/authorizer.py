"""Decisions of Kafka's StandardAuthorizer: may a principal perform an operation on a resource? No I/O, no clock.

    super user                               allowed
    a DENY matches                           denied, whatever else matches
    an ALLOW matches                         allowed
    ACLs concern the resource, of others     denied
    no ACL concerns the resource             allow.everyone.if.no.acl.found

An ACL concerns a resource by its pattern: the same name, a prefix of it, or `*`. ALLOW of READ, WRITE, DELETE or ALTER
is ALLOW of DESCRIBE too, and ALLOW of ALTER_CONFIGS of DESCRIBE_CONFIGS; DENY implies nothing.

An `Authorizer` belongs to one set of ACLs, and is replaced with them. So what it has found once holds: a request costs
one look-up in a dictionary for each resource that it names, after the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker_embedded.metadata.acls import (
    ANYBODY,
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
)

_IMPLIED_BY: dict[AclOperation, frozenset[AclOperation]] = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS}),
}

MAX_REMEMBERED = 10_000
"""Decisions and principals cached; then the cache is cleared. Names come from clients, in any number."""

_SOME_RESOURCE = "hardcode"
"""Kafka's name for it. A principal with an operation on a resource that no ACL names has it on one of the kind."""

Question = tuple[AclOperation, AclResource, str]


class _Index:
    """The ACLs of one kind of resource, by the pattern that they apply to."""

    __slots__ = ("all", "literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.all: list[AclBinding] = []
        self.literal: dict[str, list[AclBinding]] = {}
        self.prefixed: dict[str, list[AclBinding]] = {}
        self.prefix_lengths: list[int] = []

    def add(self, acl: AclBinding) -> None:
        self.all.append(acl)
        by_name = self.prefixed if acl.pattern is PatternType.PREFIXED else self.literal
        by_name.setdefault(acl.name, []).append(acl)

    def concerning(self, name: str) -> list[AclBinding]:
        found = [*self.literal.get(name, ())]
        if name != WILDCARD:
            found += self.literal.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length > len(name):
                break
            found += self.prefixed.get(name[:length], ())
        return found


class Authorizer:
    """Decides by one set of ACLs."""

    def __init__(
        self, acls: Iterable[AclBinding], *, super_users: Collection[str] = (), allows_if_no_acl: bool = False
    ) -> None:
        """`allows_if_no_acl`: Kafka's allow.everyone.if.no.acl.found."""
        self._super_users = frozenset(super_users)
        self._allows_if_no_acl = allows_if_no_acl
        self._indexes = {resource: _Index() for resource in AclResource}
        for acl in acls:
            self._indexes[acl.resource].add(acl)
        for index in self._indexes.values():
            index.prefix_lengths = sorted({len(prefix) for prefix in index.prefixed})
        self._rights: dict[tuple[str, str], Rights] = {}

    def rights_of(self, principal: str, host: str) -> Rights:
        """Return the rights of a principal at an address."""
        rights = self._rights.get((principal, host))
        if rights is None:
            if len(self._rights) >= MAX_REMEMBERED:
                self._rights.clear()
            rights = self._rights[principal, host] = Rights(self, principal, host)
        return rights

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def decide(self, principal: str, host: str, question: Question) -> bool:
        """Decide whether it is allowed. `Rights.allows` caches the result."""
        if principal in self._super_users:
            return True
        operation, resource, name = question
        concerning = self._indexes[resource].concerning(name)
        if not concerning:
            return self._allows_if_no_acl
        is_allowed = False
        for acl in concerning:
            if not _is_of(acl, principal, host) or not _covers(acl, operation):
                continue
            if acl.permission is Permission.DENY:
                return False
            is_allowed = True
        return is_allowed

    def decide_by_type(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> bool:
        """Decide whether it may be allowed on some resource of this kind (KIP-679)."""
        if self.decide(principal, host, (operation, resource, _SOME_RESOURCE)):
            return True
        own = [
            acl
            for acl in self._indexes[resource].all
            if _is_of(acl, principal, host) and acl.operation in (operation, AclOperation.ALL)
        ]
        denied = {(acl.pattern, acl.name) for acl in own if acl.permission is Permission.DENY}
        allowed = {(acl.pattern, acl.name) for acl in own if acl.permission is Permission.ALLOW}
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denied:
            return False
        return everything in allowed or any(not _is_dominated(pattern, name, denied) for pattern, name in allowed)


class Rights:
    """The rights of one principal at one address, with a cache."""

    __slots__ = ("_authorizer", "_known", "_known_by_type", "host", "principal")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self.principal = principal
        self.host = host
        self._authorizer = authorizer
        self._known: dict[Question, bool] = {}
        self._known_by_type: dict[tuple[AclOperation, AclResource], bool] = {}

    def allows(self, operation: AclOperation, resource: AclResource, name: str) -> bool:
        question = (operation, resource, name)
        known = self._known.get(question)
        if known is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            known = self._known[question] = self._authorizer.decide(self.principal, self.host, question)
        return known

    @property
    def is_super_user(self) -> bool:
        return self._authorizer.is_super_user(self.principal)

    def allows_on_cluster(self, operation: AclOperation) -> bool:
        return self.allows(operation, AclResource.CLUSTER, CLUSTER_NAME)

    def allows_some(self, operation: AclOperation, resource: AclResource) -> bool:
        """Return whether it is allowed on at least one resource of this kind."""
        known = self._known_by_type.get((operation, resource))
        if known is None:
            known = self._authorizer.decide_by_type(self.principal, self.host, operation, resource)
            self._known_by_type[operation, resource] = known
        return known


def _is_of(acl: AclBinding, principal: str, host: str) -> bool:
    return acl.principal in (principal, ANYBODY) and acl.is_from(host)


def _covers(acl: AclBinding, operation: AclOperation) -> bool:
    if acl.operation is AclOperation.ALL or acl.operation is operation:
        return True
    return acl.permission is Permission.ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())


def _is_dominated(pattern: PatternType, name: str, denied: Collection[tuple[PatternType, str]]) -> bool:
    """Return whether a denying pattern covers all of an allowing one."""
    if pattern is PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
