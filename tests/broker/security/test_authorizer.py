"""What the authorizer decides, against Kafka's rules written down naively, and rule by rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.metadata.acls import (
    ANY,
    ANYBODY,
    UNKNOWN,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
)
from broker_embedded.security import authorizer as authorizer_module
from broker_embedded.security.authorizer import Authorizer

ALICE, BOB = "User:alice", "User:bob"
HOST = "10.0.0.1"
TOPIC = AclResource.TOPIC


def acl(
    operation: AclOperation,
    name: str = "orders",
    *,
    deny: bool = False,
    principal: str = ALICE,
    host: str = WILDCARD,
    pattern: PatternType = PatternType.LITERAL,
    resource: AclResource = TOPIC,
) -> AclBinding:
    return AclBinding(
        resource=resource,
        name=name,
        pattern=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission=Permission.DENY if deny else Permission.ALLOW,
    )


def allows(
    *acls: AclBinding,
    operation: AclOperation = AclOperation.READ,
    name: str = "orders",
    who: str = ALICE,
    host: str = HOST,
) -> bool:
    return Authorizer(acls).rights_of(who, host).allows(operation, TOPIC, name)


# --- against a model

NAMES = st.text(alphabet="ab*", min_size=1, max_size=3)
ACLS = st.builds(
    AclBinding,
    resource=st.sampled_from([AclResource.TOPIC, AclResource.GROUP]),
    name=NAMES,
    pattern=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from([ALICE, BOB, ANYBODY]),
    host=st.sampled_from([HOST, "10.0.0.2", WILDCARD]),
    operation=st.sampled_from(AclOperation),
    permission=st.sampled_from(Permission),
)
OPERATIONS = st.sampled_from([each for each in AclOperation if each is not AclOperation.ALL])


def concerns(acl: AclBinding, name: str) -> bool:
    if acl.pattern is PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in ("*", name)


def model_allows(
    acls: list[AclBinding], who: str, host: str, operation: AclOperation, resource: AclResource, name: str
) -> bool:
    """Kafka's documentation of authorization, sentence by sentence."""
    own = [each for each in acls if each.resource is resource and concerns(each, name)]
    if not own:
        return False
    own = [each for each in own if each.principal in (who, "User:*") and each.host in (host, "*")]
    for each in own:
        if each.permission is Permission.DENY and each.operation in (operation, AclOperation.ALL):
            return False
    granted = {each.operation for each in own if each.permission is Permission.ALLOW}
    if granted & {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}:
        granted.add(AclOperation.DESCRIBE)
    if AclOperation.ALTER_CONFIGS in granted:
        granted.add(AclOperation.DESCRIBE_CONFIGS)
    return operation in granted or AclOperation.ALL in granted


@given(st.lists(ACLS, max_size=12), st.sampled_from([ALICE, BOB]), OPERATIONS, st.text(alphabet="ab*c", max_size=4))
def test_decides_as_the_rules_say(acls: list[AclBinding], who: str, operation: AclOperation, name: str) -> None:
    rights = Authorizer(acls).rights_of(who, HOST)
    expected = model_allows(acls, who, HOST, operation, TOPIC, name)
    assert rights.allows(operation, TOPIC, name) is expected
    assert rights.allows(operation, TOPIC, name) is expected, "the second time too"


@given(st.lists(ACLS, max_size=12), st.permutations(range(12)), OPERATIONS, NAMES)
def test_the_order_of_acls_means_nothing(
    acls: list[AclBinding], order: list[int], operation: AclOperation, name: str
) -> None:
    shuffled = [acls[index] for index in order if index < len(acls)]
    one, other = (Authorizer(each).rights_of(ALICE, HOST) for each in (acls, shuffled))
    assert one.allows(operation, TOPIC, name) is other.allows(operation, TOPIC, name)


@given(st.lists(ACLS, max_size=12), ACLS, OPERATIONS, NAMES)
def test_another_deny_never_allows_more(
    acls: list[AclBinding], more: AclBinding, operation: AclOperation, name: str
) -> None:
    question = (operation, TOPIC, name)
    if more.permission is Permission.DENY and not Authorizer(acls).decide(ALICE, HOST, question):
        assert not Authorizer([*acls, more]).decide(ALICE, HOST, question)


def names_up_to(length: int) -> list[str]:
    """All names that could tell the patterns of `NAMES` apart."""
    names = [""]
    for _ in range(length):
        names += [name + letter for name in names for letter in "ab*c"]
    return [name for name in set(names) if name]


ALL_NAMES = names_up_to(4)


@given(st.lists(ACLS, max_size=8), OPERATIONS)
def test_some_resource_is_found_exactly_if_there_may_be_one(acls: list[AclBinding], operation: AclOperation) -> None:
    """Kafka looks at ACLs of this very operation only: what implies it does not count."""
    exact = [each for each in acls if each.operation in (operation, AclOperation.ALL)]
    found = Authorizer(exact).rights_of(ALICE, HOST).allows_some(operation, TOPIC)
    assert found is any(model_allows(exact, ALICE, HOST, operation, TOPIC, name) for name in ALL_NAMES)


# --- rule by rule


def test_without_acls_nobody_may_do_anything() -> None:
    assert not allows()


def test_if_no_acl_concerns_a_resource_everybody_may_be_let_in() -> None:
    rights = Authorizer([acl(AclOperation.READ, "orders")], allows_if_no_acl=True).rights_of(BOB, HOST)
    assert rights.allows(AclOperation.WRITE, TOPIC, "payments")
    assert not rights.allows(AclOperation.READ, TOPIC, "orders"), "an ACL concerns it, of somebody else"
    assert rights.allows_some(AclOperation.WRITE, TOPIC)


def test_a_deny_wins_over_every_allow() -> None:
    granted = [acl(AclOperation.ALL, WILDCARD, principal=ANYBODY), acl(AclOperation.READ)]
    assert allows(*granted)
    assert not allows(*granted, acl(AclOperation.READ, "ord", pattern=PatternType.PREFIXED, deny=True))
    assert not allows(*granted, acl(AclOperation.ALL, WILDCARD, principal=ANYBODY, deny=True))


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_who_may_use_it_may_describe_it_and_a_deny_implies_nothing(operation: AclOperation) -> None:
    assert allows(acl(operation), operation=AclOperation.DESCRIBE)
    assert allows(acl(AclOperation.DESCRIBE), acl(operation, deny=True), operation=AclOperation.DESCRIBE), (
        "only the operation itself is denied"
    )


def test_who_may_alter_settings_may_describe_them_but_not_the_resource() -> None:
    assert allows(acl(AclOperation.ALTER_CONFIGS), operation=AclOperation.DESCRIBE_CONFIGS)
    assert not allows(acl(AclOperation.ALTER_CONFIGS), operation=AclOperation.DESCRIBE)


def test_a_literal_name_is_no_prefix() -> None:
    assert not allows(acl(AclOperation.READ, "orders"), name="orders-eu")
    assert allows(acl(AclOperation.READ, "orders", pattern=PatternType.PREFIXED), name="orders-eu")


def test_an_address_has_to_match() -> None:
    only_here = acl(AclOperation.READ, host=HOST)
    assert allows(only_here)
    assert not allows(only_here, host="10.0.0.2")


def test_a_super_user_may_do_everything_whatever_is_denied() -> None:
    denied = acl(AclOperation.ALL, WILDCARD, principal=ANYBODY, deny=True)
    judge = Authorizer([denied], super_users=[ALICE])
    assert judge.rights_of(ALICE, HOST).allows(AclOperation.WRITE, TOPIC, "orders")
    assert judge.rights_of(ALICE, HOST).allows_some(AclOperation.WRITE, TOPIC)
    assert not judge.rights_of(BOB, HOST).allows(AclOperation.WRITE, TOPIC, "orders")
    assert judge.is_super_user(ALICE)
    assert not judge.is_super_user(BOB)


def test_a_topic_that_may_be_written_to_is_found_unless_all_of_it_is_denied() -> None:
    def may_write_somewhere(*acls: AclBinding) -> bool:
        return Authorizer(acls).rights_of(ALICE, HOST).allows_some(AclOperation.WRITE, TOPIC)

    some = acl(AclOperation.WRITE, "orders-", pattern=PatternType.PREFIXED)
    assert may_write_somewhere(some)
    assert may_write_somewhere(some, acl(AclOperation.WRITE, "orders-eu", deny=True))
    assert not may_write_somewhere(some, acl(AclOperation.WRITE, "ord", pattern=PatternType.PREFIXED, deny=True))
    assert not may_write_somewhere(some, acl(AclOperation.WRITE, WILDCARD, deny=True))
    assert not may_write_somewhere(acl(AclOperation.READ, WILDCARD))


def test_what_was_asked_is_not_found_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Authorizer([acl(AclOperation.READ)])
    asked = 0
    decide = judge.decide

    def count(*arguments: object) -> bool:
        nonlocal asked
        asked += 1
        return decide(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(judge, "decide", count)
    for _ in range(3):
        assert judge.rights_of(ALICE, HOST).allows(AclOperation.READ, TOPIC, "orders")
    assert asked == 1


def test_made_up_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "MAX_REMEMBERED", 3)
    judge = Authorizer([acl(AclOperation.READ, principal=ANYBODY)])
    for number in range(10):
        rights = judge.rights_of(f"User:{number}", HOST)
        assert not rights.allows(AclOperation.READ, TOPIC, str(number))
        assert rights.allows(AclOperation.READ, TOPIC, "orders")
        assert not judge.rights_of(BOB, HOST).allows(AclOperation.READ, TOPIC, str(number))
    assert len(judge._rights) <= 3
    assert len(judge.rights_of(BOB, HOST)._known) <= 3


# --- filters


def test_an_empty_filter_chooses_everything() -> None:
    assert AclFilter().matches(acl(AclOperation.READ))


@pytest.mark.parametrize(
    "other",
    [
        AclFilter(resource=AclResource.GROUP),
        AclFilter(name="payments"),
        AclFilter(pattern=PatternType.PREFIXED),
        AclFilter(principal=BOB),
        AclFilter(host=HOST),
        AclFilter(operation=AclOperation.WRITE),
        AclFilter(permission=Permission.DENY),
    ],
)
def test_each_part_of_a_filter_narrows_it(other: AclFilter) -> None:
    assert not other.matches(acl(AclOperation.READ))


@pytest.mark.parametrize(
    ("name", "pattern", "is_chosen"),
    [
        ("orders", PatternType.LITERAL, True),
        (WILDCARD, PatternType.LITERAL, True),
        ("ord", PatternType.PREFIXED, True),
        ("ord", PatternType.LITERAL, False),
        ("orders-eu", PatternType.PREFIXED, False),
    ],
)
def test_a_match_chooses_what_concerns_the_resource(name: str, pattern: PatternType, is_chosen: bool) -> None:
    found = AclFilter(name="orders", pattern=PatternType.MATCH).matches(acl(AclOperation.READ, name, pattern=pattern))
    assert found is is_chosen


def test_any_pattern_of_a_name_is_not_what_concerns_it() -> None:
    wanted = AclFilter(name="orders", pattern=ANY)
    assert wanted.matches(acl(AclOperation.READ, "orders", pattern=PatternType.PREFIXED))
    assert not wanted.matches(acl(AclOperation.READ, WILDCARD))


@pytest.mark.parametrize("number", [UNKNOWN, 99, -1])
def test_numbers_without_a_meaning_are_noticed(number: int) -> None:
    assert AclFilter().is_understood
    for field in ("resource", "pattern", "operation", "permission"):
        assert not AclFilter(**{field: number}).is_understood  # type: ignore[arg-type]
