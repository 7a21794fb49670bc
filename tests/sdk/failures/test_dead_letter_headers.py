"""Dead letters: the original bytes, our headers, everybody else's headers, and the way back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.failures import DeadLetterReason, build_dead_letter, build_redrive, describe_dead_letter
from ottla.failures.dead_letter import PREFIX, DeadLetterRecord, Form, forms_of, without_dead_letter_headers
from ottla.failures.exceptions import MESSAGE_LIMIT_BYTES, STACK_TRACE_LIMIT_BYTES
from ottla.failures.redrive import Original
from ottla.producer import size_in_own_batch
from ottla.records import Header

REASON = DeadLetterReason(
    kind="failed",
    error_type="shop.PaymentError",
    message="card refused: ü",
    stack_trace="Traceback ...",
    attempts=5,
    group="billing",
    first_failure_ms=1_700_000_000_123,
    dead_lettered_ms=1_700_000_009_999,
)

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
"""A NUL is written as text: confluent-kafka would cut the name there."""
headers_strategy = st.lists(st.tuples(names, st.none() | st.binary(max_size=40)), max_size=6)


def letter(headers: list[Header] | None = None, **changes: object):  # type: ignore[no-untyped-def]
    parts: dict[str, object] = {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1_699_999_999_000,
        "key": b"k",
        "value": b"\xff\x00",
        "headers": headers or [],
        "reason": REASON,
    }
    return build_dead_letter(**{**parts, **changes})  # type: ignore[arg-type]


def test_the_view_tells_everything_that_was_known() -> None:
    view = describe_dead_letter(letter().headers)

    assert view is not None
    assert view.family == "ottla"
    assert view.origin == "orders-3@42"
    assert view.timestamp_ms == 1_699_999_999_000
    assert (view.kind, view.error_type, view.message) == ("failed", "shop.PaymentError", "card refused: ü")
    assert (view.stack_trace, view.attempts, view.group) == ("Traceback ...", 5, "billing")
    assert (view.first_failure_ms, view.dead_lettered_ms, view.version) == (1_700_000_000_123, 1_700_000_009_999, "1")


@given(key=st.none() | st.binary(), value=st.none() | st.binary(), headers=headers_strategy)
def test_key_value_and_headers_are_kept_byte_for_byte(
    key: bytes | None, value: bytes | None, headers: list[Header]
) -> None:
    own = [header for header in headers if not header[0].startswith(PREFIX)]

    dead = letter(own, key=key, value=value)

    assert (dead.key, dead.value) == (key, value)
    assert dead.headers[: len(own)] == own


def test_every_header_of_the_family_is_utf_8_text() -> None:
    reason = DeadLetterReason(kind="failed", message="a lone surrogate \udcff")
    for name, value in letter(reason=reason).headers:
        assert name.startswith(PREFIX)
        assert value is not None
        value.decode("utf-8")


def test_message_and_stack_trace_are_capped_in_bytes() -> None:
    reason = DeadLetterReason(kind="failed", message="ü" * 5_000, stack_trace="x" * 50_000)
    headers = dict(letter(reason=reason).headers)

    assert len(headers[PREFIX + "error-message"] or b"") <= MESSAGE_LIMIT_BYTES
    assert len(headers[PREFIX + "stack-trace"] or b"") <= STACK_TRACE_LIMIT_BYTES


def test_a_second_death_replaces_the_family_and_keeps_the_rest() -> None:
    first = letter([("trace", b"1")])
    second = letter(first.headers, topic="orders.dead", offset=7)
    view = describe_dead_letter(second.headers)

    assert view is not None
    assert view.origin == "orders.dead-3@7"
    assert [name for name, _ in second.headers].count(PREFIX + "topic") == 1
    assert without_dead_letter_headers(second.headers) == [("trace", b"1")]


FOREIGN: dict[str, list[Header]] = {
    "spring": [
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", struct.pack(">i", 3)),
        ("kafka_dlt-original-offset", struct.pack(">q", 42)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", 1_699_999_999_000)),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
        ("kafka_dlt-exception-message", b"no"),
    ],
    "spring-cloud-stream": [
        ("x-original-topic", b"orders"),
        ("x-original-partition", struct.pack(">i", 3)),
        ("x-original-offset", struct.pack(">q", 42)),
        ("x-exception-message", b"no"),
    ],
    "connect": [
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"42"),
        ("__connect.errors.exception.message", b"no"),
    ],
    "streams": [
        ("__streams.errors.topic", b"orders"),
        ("__streams.errors.partition", b"3"),
        ("__streams.errors.offset", b"42"),
        ("__streams.errors.message", b"no"),
    ],
    "smallrye": [
        ("dead-letter-topic", b"orders"),
        ("dead-letter-partition", b"3"),
        ("dead-letter-offset", b"42"),
        ("dead-letter-reason", b"no"),
    ],
    "karafka": [("source_topic", b"orders"), ("source_partition", b"3"), ("source_offset", b"42")],
    "share-groups": [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"42"),
    ],
}


@pytest.mark.parametrize("family", FOREIGN)
def test_every_foreign_family_reads_into_the_same_view(family: str) -> None:
    view = describe_dead_letter([("app", b"header"), *FOREIGN[family]])

    assert view is not None
    assert view.family == family
    assert view.origin == "orders-3@42"
    assert view.message in ("no", None)


def test_springs_numbers_may_be_digits_too() -> None:
    digits: list[Header] = [("kafka_dlt-original-partition", b"12"), ("kafka_dlt-original-offset", b"12345678")]
    view = describe_dead_letter(digits)

    assert view is not None
    assert (view.partition, view.offset) == (12, 12_345_678)


def test_our_own_family_wins_when_a_spring_dead_letter_died_here() -> None:
    view = describe_dead_letter(letter(FOREIGN["spring"], topic="orders-dlt").headers)

    assert view is not None
    assert (view.family, view.topic) == ("ottla", "orders-dlt")


@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from([name for family in FOREIGN.values() for name, _ in family] + [PREFIX + "offset"]),
            st.none() | st.binary(max_size=12),
        ),
        max_size=8,
    )
)
def test_describing_never_fails_whatever_the_bytes(headers: list[Header]) -> None:
    view = describe_dead_letter(headers)

    assert view is None or isinstance(view.origin, str)


def test_a_record_without_such_headers_is_no_dead_letter() -> None:
    assert describe_dead_letter([("trace", b"1"), ("empty", None)]) is None


def test_redriving_sends_the_original_back_without_the_story() -> None:
    dead = letter([("trace", b"1"), ("null", None)])
    redrive = build_redrive(key=dead.key, value=dead.value, headers=dead.headers)

    assert redrive is not None
    assert (redrive.topic, redrive.key, redrive.value, redrive.times) == ("orders", b"k", b"\xff\x00", 1)
    assert redrive.headers == [
        ("trace", b"1"),
        ("null", None),
        ("ottla-redriven", b"1"),
        ("ottla-redriven-timestamp", b"1699999999000"),
    ]


def test_redriving_counts_how_often() -> None:
    once = build_redrive(key=None, value=b"v", headers=letter().headers)
    assert once is not None
    twice = build_redrive(key=None, value=b"v", headers=letter(once.headers).headers)

    assert twice is not None
    assert twice.times == 2
    assert twice.headers == [("ottla-redriven", b"2"), ("ottla-redriven-timestamp", b"1699999999000")]


@pytest.mark.parametrize("family", FOREIGN)
def test_anybodys_dead_letter_can_be_redriven(family: str) -> None:
    redrive = build_redrive(key=None, value=b"v", headers=FOREIGN[family])

    assert redrive is not None
    assert redrive.topic == "orders"
    assert describe_dead_letter(redrive.headers) is None


def test_a_record_of_unknown_origin_needs_a_topic() -> None:
    assert build_redrive(key=None, value=b"v", headers=[]) is None
    redrive = build_redrive(key=None, value=b"v", headers=[], to_topic="orders")
    assert redrive is not None
    assert redrive.topic == "orders"


class TestForms:
    @given(key=st.none() | st.binary(), value=st.none() | st.binary(), own=headers_strategy)
    def test_each_is_smaller_than_the_one_before_and_says_where_the_record_is(
        self, key: bytes | None, value: bytes | None, own: list[Header]
    ) -> None:
        dead = letter(own, key=key, value=value)
        forms = list(forms_of(dead))
        assert forms[0] == (Form.WHOLE, dead)
        kept = without_dead_letter_headers(own)
        for form, smaller in forms:
            view = describe_dead_letter(smaller.headers)
            assert view is not None
            assert (view.origin, view.kind, view.timestamp_ms) == ("orders-3@42", "failed", 1_699_999_999_000)
            assert (view.omitted is not None) == form.is_claim
            assert form.is_claim or (smaller.key, smaller.value) == (key, value)
            assert form is Form.POSITION or (smaller.key, without_dead_letter_headers(smaller.headers)) == (key, kept)
        whole = size_in_own_batch(*dead)
        bare = next(size for form, size in sizes_of(forms) if form is Form.BARE)
        assert bare < whole

    def test_the_story_goes_first_and_the_value_next_to_last(self) -> None:
        forms = list(forms_of(letter(value=bytes(1_000))))
        assert [form for form, _ in forms] == list(Form)
        sizes = [size for _, size in sizes_of(forms)]
        assert sizes[0] > sizes[1] > sizes[2] > sizes[3] > sizes[4]
        assert sizes[4] < 300

    def test_a_claim_without_its_record_is_never_sent_back(self) -> None:
        for form, dead in forms_of(letter()):
            sent = build_redrive(key=dead.key, value=dead.value, headers=dead.headers)
            assert (sent is None) == form.is_claim, "it would be a tombstone"

    def test_a_claim_is_sent_back_as_the_record_at_its_position_unless_that_is_another_one(self) -> None:
        (_, claim) = list(forms_of(letter()))[-1]
        for timestamp_ms, is_same in ((1_699_999_999_000, True), (1, False), (None, False)):
            original = Original(key=b"k", value=b"v", headers=[("own", b"1")], timestamp_ms=timestamp_ms)
            sent = build_redrive(key=claim.key, value=claim.value, headers=claim.headers, original=original)
            assert (sent is not None) == is_same
            if sent is not None:
                assert (sent.topic, sent.key, sent.value) == ("orders", b"k", b"v")
                first = ("ottla-redriven-timestamp", b"1699999999000")
                assert sent.headers == [("own", b"1"), ("ottla-redriven", b"1"), first]


def sizes_of(forms: list[tuple[Form, DeadLetterRecord]]) -> list[tuple[Form, int]]:
    return [(form, size_in_own_batch(*dead)) for form, dead in forms]
