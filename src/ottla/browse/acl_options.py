"""From the options of `ottla acls` to the ACLs that they mean, as kafka-acls reads them.

A page of the console and the file of `ottla apply` have the same fields, so that messages name no option.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ottla.admin.operations.acl_changes import CLUSTER, CLUSTER_NAME, Acl
from ottla.errors import InputError

_PRODUCER_OF_TOPIC = ("write", "describe", "create")
_PRODUCER_OF_ID = ("write", "describe")
_CONSUMER_OF_TOPIC = ("read", "describe")
ANY_HOST = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    kafka_cluster: bool = False
    pattern: str = "literal"
    allowed: Sequence[str] = ()
    denied: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    denied_hosts: Sequence[str] = ()
    operations: Sequence[str] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    @property
    def has_role(self) -> bool:
        return self.producer or self.consumer

    @property
    def resources(self) -> list[tuple[str, str]]:
        """Kind and name of everything that is named."""
        named = [("topic", name) for name in self.topics]
        named += [("group", name) for name in self.groups]
        named += [("transactional-id", name) for name in self.transactional_ids]
        return [*named, *([(CLUSTER, CLUSTER_NAME)] if self.kafka_cluster else [])]


def what_to_create(options: Options) -> list[Acl]:
    """Return the ACLs, or InputError for what makes none."""
    _check_principals(options)
    if not options.allowed and not options.denied:
        raise InputError("say for whom: a principal that is allowed or denied, as in User:billing")
    if not options.resources:
        raise InputError("say for what: a topic, a group, a transactional id or the cluster")
    return _acls(options)


def what_to_find(options: Options, *, by_name_only: bool) -> list[Acl]:
    """Return filters for the named resources, or one that matches everything. `by_name_only`: options that are not
    given match anything."""
    _check_principals(options)
    if not by_name_only:
        return _acls(options)
    resources: list[tuple[str, str | None]] = [*options.resources] or [("any", None)]
    whose: list[tuple[str, str | None, str | None]] = [*_whose(options)] or [("any", None, None)]
    return [
        Acl(
            resource=kind,
            name=name,
            pattern="any" if name is None else _pattern(kind, options),
            principal=principal,
            host=host,
            operation=operation,
            permission=permission,
        )
        for (kind, name), (permission, principal, host), operation in product(
            resources, whose, options.operations or ("any",)
        )
    ]


def _whose(options: Options) -> Iterator[tuple[str, str, str | None]]:
    """Return permission, principal and host. `list` takes both permissions."""
    is_list = not options.denied and not options.allowed_hosts and not options.operations
    for principal, host in product(options.allowed, options.allowed_hosts or (None,)):
        yield ("any" if is_list else "allow"), principal, host
    for principal, host in product(options.denied, options.denied_hosts or (None,)):
        yield "deny", principal, host


def _acls(options: Options) -> list[Acl]:
    granted = list(_granted(options))
    who = [("allow", *each) for each in product(options.allowed, options.allowed_hosts or (ANY_HOST,))]
    who += [("deny", *each) for each in product(options.denied, options.denied_hosts or (ANY_HOST,))]
    return [
        Acl(
            resource=kind,
            name=name,
            pattern=_pattern(kind, options),
            principal=principal,
            host=host,
            operation=operation,
            permission=permission,
        )
        for (kind, name, operation), (permission, principal, host) in product(granted, who)
    ]


def _granted(options: Options) -> Iterator[tuple[str, str, str]]:
    """Return kind, name and operation."""
    if not options.has_role:
        for (kind, name), operation in product(options.resources, options.operations or ("all",)):
            yield kind, name, operation
        return
    _check_role(options)
    of_topic = dict.fromkeys(
        (*(_PRODUCER_OF_TOPIC if options.producer else ()), *(_CONSUMER_OF_TOPIC if options.consumer else ()))
    )
    for name, operation in product(options.topics, of_topic):
        yield "topic", name, operation
    if options.producer:
        for name, operation in product(options.transactional_ids, _PRODUCER_OF_ID):
            yield "transactional-id", name, operation
        if options.idempotent:
            yield CLUSTER, CLUSTER_NAME, "idempotent-write"
    if options.consumer:
        for name in options.groups:
            yield "group", name, "read"


def _check_role(options: Options) -> None:
    if options.operations:
        raise InputError("producer and consumer stand for their operations; give no operations beside them")
    if options.denied:
        raise InputError("a producer or a consumer is allowed, not denied; deny single operations")
    if options.producer and not (options.topics or options.transactional_ids):
        raise InputError("a producer: say to which topic, or with which transactional id")
    if options.consumer and not (options.topics and options.groups):
        raise InputError("a consumer: say of which topic, and in which group")


def _check_principals(options: Options) -> None:
    for principal in (*options.allowed, *options.denied):
        kind, colon, name = principal.partition(":")
        if not (kind and colon and name):
            raise InputError(f"principal: found {principal!r}, wanted KIND:NAME, as in User:billing")


def _pattern(kind: str, options: Options) -> str:
    """Return the pattern of a resource. The cluster has one name only, so no prefix applies to it."""
    return "literal" if kind == CLUSTER and options.pattern == "prefixed" else options.pattern
