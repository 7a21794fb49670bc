"""A wire client with a name, and the ACLs that it is given: for brokers with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from wire_client import WireClient

from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(2, 9)
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(9, 13)
DENY, ALLOW = 2, 3

DENIALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True)
class Grant:
    """An ACL, of bob on everything's own name unless it says otherwise."""

    operation: int
    resource: int = CLUSTER
    name: str = "kafka-cluster"
    pattern: int = LITERAL
    principal: str = "User:bob"
    host: str = "*"
    permission: int = ALLOW

    def creation(self) -> dict[str, Any]:
        return {
            "resource_type": self.resource,
            "resource_name": self.name,
            "resource_pattern_type": self.pattern,
            "principal": self.principal,
            "host": self.host,
            "operation": self.operation,
            "permission_type": self.permission,
        }


EVERYTHING = {
    "resource_type_filter": ANY,
    "resource_name_filter": None,
    "pattern_type_filter": ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": ANY,
    "permission_type": ANY,
}


class UserClient(WireClient):
    """One connection of a user, who has said the password."""

    def __init__(self, bootstrap_servers: str, user: str, password: str | None = None) -> None:
        super().__init__(bootstrap_servers, timeout_s=60, client_id=user)
        self.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        token = f"\0{user}\0{password or USERS[user]}".encode()
        answer = self.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token})
        assert answer.error_code == ErrorCode.NONE, answer.error_message

    # --- ACLs

    def create_acls(self, *grants: Grant) -> list[Message]:
        body = {"creations": [each.creation() for each in grants]}
        results: list[Message] = self.call(ApiKey.CREATE_ACLS, 3, body).results
        return results

    def grant(self, *grants: Grant) -> None:
        for result in self.create_acls(*grants):
            assert result.error_code == ErrorCode.NONE, result.error_message

    def delete_acls(self, **filters: Any) -> list[Message]:
        """The ACLs that were deleted; all of them if nothing is said."""
        answer = self.call(ApiKey.DELETE_ACLS, 3, {"filters": [{**EVERYTHING, **filters}]}).filter_results[0]
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        deleted: list[Message] = answer.matching_acls
        return deleted

    def describe_acls(self, **filters: Any) -> set[Grant]:
        answer = self.call(ApiKey.DESCRIBE_ACLS, 3, {**EVERYTHING, **filters})
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        return {
            Grant(
                acl.operation,
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.permission_type,
            )
            for resource in answer.resources
            for acl in resource.acls
        }


def errors_in(message: Message) -> set[ErrorCode]:
    """Every error code anywhere in an answer."""
    return {ErrorCode(code) for code in _codes(message)}


def denials_in(message: Message) -> set[ErrorCode]:
    """Those that say that something is not allowed."""
    return errors_in(message) & DENIALS


def _codes(message: Message) -> Iterator[int]:
    for name in message.FIELDS:
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message):
                    yield from _codes(each)
