"""ACLs over the wire client: found, created, deleted, and what a broker that refuses makes of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from acl_client import SETTINGS

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Acl, AclsRefused, Admin, AsyncAdmin, PartlyDone
from ottla.admin.facts.admin_operation import AdminOperation, RetryLater
from ottla.admin.operations.acl_changes import OPERATIONS, create_acls, delete_acls, find_acls
from ottla.errors import InputError
from ottla_wire.protocol import ErrorCode

BILLING = Acl(
    resource="topic",
    name="orders",
    pattern="literal",
    principal="User:billing",
    host="*",
    operation="read",
    permission="allow",
)
PREFIXED = Acl(
    resource="topic",
    name="ord",
    pattern="prefixed",
    principal="User:*",
    host="10.0.0.1",
    operation="describe",
    permission="deny",
)
OWN_SETTINGS = {**SETTINGS, "super.users": "User:ANONYMOUS"}


def test_what_is_created_is_found_by_each_filter_and_deleted() -> None:
    with EmbeddedCluster(config=OWN_SETTINGS) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_acls()
        assert admin.find_acls() == ()
        admin.create_acls(BILLING, PREFIXED)
        admin.create_acls(BILLING)
        assert admin.find_acls() == (PREFIXED, BILLING)
        assert admin.find_acls(Acl(principal="User:billing")) == (BILLING,)
        assert admin.find_acls(Acl(resource="topic", name="orders", pattern="literal")) == (BILLING,)
        assert admin.find_acls(Acl(resource="topic", name="orders", pattern="match")) == (PREFIXED, BILLING)
        assert admin.delete_acls(Acl(permission="deny")) == (PREFIXED,)
        assert admin.delete_acls(BILLING, BILLING) == (BILLING,)
        assert admin.delete_acls() == admin.delete_acls(BILLING) == admin.find_acls() == ()


def test_all_operations_go_there_and_come_back() -> None:
    with EmbeddedCluster(config=OWN_SETTINGS) as cluster, Admin(cluster.bootstrap_servers) as admin:
        for operation in OPERATIONS[:11]:
            resource, name = ("cluster", "kafka-cluster") if operation == "cluster-action" else ("topic", "orders")
            acl = Acl(
                resource=resource,
                name=name,
                pattern="literal",
                principal="User:a",
                host="*",
                operation=operation,
                permission="allow",
            )
            admin.create_acls(acl)
            assert admin.delete_acls(Acl()) == (acl,)


def test_on_asyncio_as_well() -> None:
    async def run(servers: str) -> None:
        async with AsyncAdmin(servers) as admin:
            await admin.create_acls(BILLING)
            assert await admin.find_acls(Acl(name="orders", resource="topic", pattern="any")) == (BILLING,)
            assert await admin.delete_acls(BILLING) == (BILLING,)

    with EmbeddedCluster(config=OWN_SETTINGS) as cluster:
        asyncio.run(run(cluster.bootstrap_servers))


def test_a_broker_without_an_authorizer_says_so() -> None:
    with EmbeddedCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        for ask in (lambda: admin.find_acls(), lambda: admin.create_acls(BILLING), lambda: admin.delete_acls(BILLING)):
            with pytest.raises(AclsRefused) as refused:
                ask()
            assert refused.value.code is ErrorCode.SECURITY_DISABLED


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Acl(resource="tpoic"), "ACL: resource: found 'tpoic', wanted one of topic, group"),
        (Acl(pattern="like"), "ACL: pattern"),
        (Acl(operation="drink"), "ACL: operation"),
        (Acl(operation="999"), "ACL: operation"),
        (Acl(permission="perhaps"), "ACL: permission"),
        (Acl(name="a\udcff"), "ACL: name"),
    ],
)
def test_a_word_that_kafka_does_not_know_is_refused_before_anything_is_asked(wrong: Acl, said: str) -> None:
    for steps in (find_acls(wrong), delete_acls([wrong])):
        with pytest.raises(InputError, match=said):
            next(steps)


def test_a_filter_is_nothing_to_create() -> None:
    with pytest.raises(InputError, match="principal: found none"):
        next(create_acls([Acl(resource="topic", name="a", pattern="literal", operation="read", permission="allow")]))


def answered(steps: AdminOperation[Any], *answers: Any) -> Any:
    """What steps return for these answers, one a step."""
    next(steps)
    try:
        for answer in answers:
            steps.send([answer])
    except StopIteration as end:
        return end.value
    raise AssertionError("it asks for more")


def result(code: ErrorCode, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(error_code=int(code), error_message=None, **more)


def match(code: ErrorCode, operation: int) -> SimpleNamespace:
    return result(
        code, resource_type=2, resource_name="a", pattern_type=3, principal="User:a", host="*",
        operation=operation, permission_type=3,
    )  # fmt: skip


def test_some_of_several_are_said_to_be_created() -> None:
    refused = result(ErrorCode.INVALID_REQUEST)
    with pytest.raises(PartlyDone) as error:
        answered(create_acls([BILLING, PREFIXED]), SimpleNamespace(results=[result(ErrorCode.NONE), refused]))
    assert error.value.done == (str(BILLING),)
    assert list(error.value.failed) == [str(PREFIXED)]
    with pytest.raises(AclsRefused, match="INVALID_REQUEST"):
        answered(create_acls([BILLING, PREFIXED]), SimpleNamespace(results=[refused, refused]))


def test_a_match_that_was_not_deleted_is_said() -> None:
    found = [match(ErrorCode.NONE, 3), match(ErrorCode.UNKNOWN_SERVER_ERROR, 4)]
    response = SimpleNamespace(filter_results=[result(ErrorCode.NONE, matching_acls=found)])
    with pytest.raises(PartlyDone) as error:
        answered(delete_acls([Acl()]), response)
    assert list(error.value.failed) == ["allow User:a to write topic a"]


def test_an_operation_of_a_later_kafka_is_shown_and_deleted_by_its_number() -> None:
    one = SimpleNamespace(principal="User:a", host="*", operation=99, permission_type=3)
    resource = SimpleNamespace(resource_type=2, resource_name="a", pattern_type=3, acls=[one])
    (found,) = answered(find_acls(), result(ErrorCode.NONE, resources=[resource]))
    assert found.operation == "99"
    (ask,) = next(delete_acls([found]))
    assert ask.body["filters"][0]["operation"] == 99


def test_a_controller_that_is_not_there_yet_is_asked_again() -> None:
    steps = find_acls()
    next(steps)
    step = steps.send([result(ErrorCode.NOT_CONTROLLER)])
    assert isinstance(step, RetryLater)
    next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send([result(ErrorCode.NONE, resources=[])])
    assert end.value.value == ()
