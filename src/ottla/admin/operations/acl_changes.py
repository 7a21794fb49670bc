"""Finds, creates and deletes ACLs. The cluster itself decides what a principal may do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ottla.admin.errors import PartlyDone
from ottla.admin.facts.admin_operation import (
    TRANSIENT,
    AdminOperation,
    AdminRequest,
    RetryLater,
    changing,
    problem_of,
    reading,
)
from ottla.admin.facts.cluster_facts import AclInfo
from ottla.admin.facts.protocol_names import ACL_OPERATIONS, ACL_PATTERNS, ACL_PERMISSIONS, ACL_RESOURCES, ANY
from ottla.admin.facts.response_facts import acl_fields
from ottla.errors import InputError, OttlaError
from ottla.topics import text_problem
from ottla.wire_client.errors import BrokerRefused
from ottla_wire.protocol import ApiKey, ErrorCode

CLUSTER: Final = "cluster"
CLUSTER_NAME: Final = "kafka-cluster"
OPERATIONS: Final = tuple(ACL_OPERATIONS.values())
_MATCH: Final = 2
"""Pattern type of a filter: literal, prefixed and wildcard (`*`) ACLs that apply to the name."""


def _numbers(names: Mapping[int, str], **more: int) -> dict[str, int]:
    return {name: number for number, name in names.items()} | more


_RESOURCES: Final = _numbers(ACL_RESOURCES, any=ANY)
_PATTERNS: Final = _numbers(ACL_PATTERNS, any=ANY, match=_MATCH)
_OPERATIONS: Final = _numbers(ACL_OPERATIONS, any=ANY)
_PERMISSIONS: Final = _numbers(ACL_PERMISSIONS, any=ANY)


class AclsRefused(BrokerRefused, has_page=False):
    """Fix what the broker refused: it has no authorizer (`code` SECURITY_DISABLED), or does not allow it."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        self.code = code
        super().__init__(text)


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Acl:
    """One ACL, or a filter of ACLs: then `any` stands for every kind, and None for every name.

    The words are those of Kafka's own tools, in lower case: `topic`, `group`, `transactional-id`, `cluster`; `literal`,
    `prefixed`, and in a filter `match` for all that apply to a name; `read`, `write`, `all`; `allow`, `deny`.
    """

    resource: str = "any"
    """The kind of resource, such as `topic`."""
    name: str | None = None
    """The resource's name, or the prefix of names."""
    pattern: str = "any"
    """`literal` or `prefixed`: how `name` is compared."""
    principal: str | None = None
    """`User:billing`; `User:*` is everybody."""
    host: str | None = None
    """An address, a network, or `*`."""
    operation: str = "any"
    """The allowed or denied operation, such as `read`."""
    permission: str = "any"
    """`allow` or `deny`."""

    def __str__(self) -> str:
        place = "" if self.resource == CLUSTER else f" {self.name}"
        prefixed = "*" if self.pattern == "prefixed" else ""
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal}{host} to {self.operation} {self.resource}{place}{prefixed}"


def acl_info(acl: Acl) -> AclInfo:
    """Return an ACL as facts have it."""
    return AclInfo(**{name: text or "" for name, text in asdict(acl).items()})


def find_acls(wanted: Acl | None = None) -> AdminOperation[tuple[Acl, ...]]:
    """Return the ACLs that match, sorted; all of them without a filter. Raises `AclsRefused`."""
    ask = AdminRequest(api=ApiKey.DESCRIBE_ACLS, body=_filter(wanted or Acl()))
    while True:
        answer = yield from reading(ask)
        problem = _problem(answer)
        if problem is None:
            found = (acl_fields(resource, each) for resource in answer.resources for each in resource.acls)
            return tuple(sorted(Acl(**each) for each in found))
        if ErrorCode.of(answer.error_code) not in TRANSIENT:
            raise problem
        yield RetryLater(reason=problem)


def create_acls(acls: Sequence[Acl]) -> AdminOperation[None]:
    """Create ACLs; existing ones are unchanged. Raises `AclsRefused`, or `PartlyDone` if some were created."""
    if not acls:
        return
    body = {"creations": [_creation(acl) for acl in acls]}
    answer = yield from changing(AdminRequest(api=ApiKey.CREATE_ACLS, body=body))
    _raise_failed({str(acl): _problem(each) for acl, each in zip(acls, answer.results, strict=True)})


def delete_acls(wanted: Sequence[Acl]) -> AdminOperation[tuple[Acl, ...]]:
    """Delete the ACLs that match any of these filters, and return them, sorted.

    Raises `AclsRefused`, and `PartlyDone` where some were deleted.
    """
    if not wanted:
        return ()
    answer = yield from changing(
        AdminRequest(api=ApiKey.DELETE_ACLS, body={"filters": [_filter(each) for each in wanted]})
    )
    outcome: dict[str, OttlaError | None] = {}
    deleted: set[Acl] = set()
    for each, result in zip(wanted, answer.filter_results, strict=True):
        outcome[str(each)] = _problem(result)
        for match in result.matching_acls:
            acl = Acl(**acl_fields(match, match))
            problem = outcome[str(acl)] = _problem(match)
            if problem is None:
                deleted.add(acl)
    _raise_failed(outcome)
    return tuple(sorted(deleted))


def _raise_failed(outcome: Mapping[str, OttlaError | None]) -> None:
    failed = {name: problem for name, problem in outcome.items() if problem is not None}
    done = [name for name in outcome if name not in failed]
    if failed and done:
        raise PartlyDone("ACLs", done=done, failed=failed)
    for problem in failed.values():
        raise problem


def _problem(answer: Any) -> OttlaError | None:
    code = ErrorCode.of(answer.error_code)
    if code is ErrorCode.NONE or code in TRANSIENT:
        return problem_of("ACLs", answer.error_code, answer.error_message)
    return AclsRefused(code, f"ACLs: {code.name}: {answer.error_message or 'the broker does not say why'}")


def _number(numbers: Mapping[str, int], what: str, text: str) -> int:
    """Return Kafka's number of a word; of a number itself, which is what a found ACL has where its word is unknown."""
    found = numbers.get(text)
    if found is None and text.isascii() and text.isdigit() and int(text) < 128:
        found = int(text)
    if found is None:
        raise InputError(f"ACL: {what}: found {text!r}, wanted one of {', '.join(numbers)}")
    return found


def _filter(acl: Acl) -> dict[str, Any]:
    _check_texts(acl)
    return {
        "resource_type_filter": _number(_RESOURCES, "resource", acl.resource),
        "resource_name_filter": acl.name,
        "pattern_type_filter": _number(_PATTERNS, "pattern", acl.pattern),
        "principal_filter": acl.principal,
        "host_filter": acl.host,
        "operation": _number(_OPERATIONS, "operation", acl.operation),
        "permission_type": _number(_PERMISSIONS, "permission", acl.permission),
    }


def _creation(acl: Acl) -> dict[str, Any]:
    for what in ("name", "principal", "host"):
        if getattr(acl, what) is None:
            raise InputError(f"ACL: {what}: found none, wanted one: only a filter leaves it out")
    found = _filter(acl)
    return {
        "resource_type": found["resource_type_filter"],
        "resource_name": acl.name,
        "resource_pattern_type": found["pattern_type_filter"],
        "principal": acl.principal,
        "host": acl.host,
        "operation": found["operation"],
        "permission_type": found["permission_type"],
    }


def _check_texts(acl: Acl) -> None:
    for what, text in (("name", acl.name), ("principal", acl.principal), ("host", acl.host)):
        problem = text_problem(text) if isinstance(text, str) else None
        if problem is not None:
            raise InputError(f"ACL: {what}: {problem}")
