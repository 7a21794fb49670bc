"""Headers that nobody has asked for yet say the same in every way as the lists that they were."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace

from ottla.once.message_id import ids_by_header
from ottla.records import Header, Record, headers_of, packed_headers_of, packed_headers_of_all, with_header
from ottla.telemetry.traces.lazy_contexts import LazyRoot, begun, extracted, lazily, unsampled_traceparent
from ottla.telemetry.traces.packed_headers import packed
from ottla.telemetry.traces.propagation import parent_is_sampled, places_of_others, recorded_parents

TRACE = "0af7651916cd43dd8448eb211c80319c"
DROPPED = f"00-{TRACE}-b7ad6b7169203331-00".encode()
RECORDED = f"00-{TRACE}-b7ad6b7169203331-01".encode()

value = st.one_of(
    st.none(),
    st.sampled_from([DROPPED, RECORDED, b"", DROPPED[:-1], DROPPED + b"-", b"ff" + DROPPED[2:], b"x" * 55]),
    st.binary(max_size=60),
)
header = st.tuples(st.sampled_from(["traceparent", "tracestate", "ottla-id", ""]), value)
traced = st.sampled_from([DROPPED, RECORDED]).map(lambda own: [("traceparent", own)])
given_headers = st.one_of(st.none(), traced, st.lists(header, max_size=3))
many = st.one_of(st.lists(traced, max_size=6), st.lists(given_headers, max_size=6))


def record_with(offset: int, headers: Any) -> Record[bytes]:
    return Record("t", 0, offset, 0, None, b"", headers, None, b"")


@given(many)
def test_records_say_of_packed_headers_what_they_were(given: list[list[Header] | None]) -> None:
    lists = [record_with(offset, headers and list(headers)) for offset, headers in enumerate(given)]
    records = [record_with(offset, headers) for offset, headers in enumerate(packed(given))]

    for name in ("traceparent", "ottla-id"):
        assert [r.offset for r in with_header(records, name)] == [r.offset for r in with_header(lists, name)]
    assert ids_by_header(records) == ids_by_header(lists)
    assert [headers_of(record) or None for record in records] == [headers or None for headers in given]
    assert [record.headers for record in records] == [headers or [] for headers in given]


@given(many)
def test_what_they_say_of_a_trace_is_the_same(given: list[list[Header] | None]) -> None:
    lists = [record_with(offset, headers) for offset, headers in enumerate(given)]
    records = [record_with(offset, headers) for offset, headers in enumerate(packed(list(given)))]

    found = packed_headers_of_all(records)
    assert list(map(parent_is_sampled, found)) == list(map(parent_is_sampled, given))
    assert places_of_others(found) == places_of_others(given)
    assert len(recorded_parents(records)) == len(recorded_parents(lists))
    for packed_one, one in zip(found, given, strict=True):
        wanted = trace.get_current_span(extracted(one or ())).get_span_context()
        for context in (extracted(packed_one or ()), lazily(packed_one or ())):
            assert trace.get_current_span(context).get_span_context() == wanted
        assert unsampled_traceparent(lazily(packed_one or ())) == unsampled_traceparent(lazily(one or ()))


def test_headers_are_one_list_from_the_first_time_that_they_are_read() -> None:
    (dropped, several, none) = (
        record_with(0, headers) for headers in packed([[("traceparent", DROPPED)], [("a", b"1"), ("b", None)], None])
    )

    for record in (dropped, several, none):
        record.headers.append(("mine", b"1"))
        assert record.headers[-1] == ("mine", b"1")
        assert headers_of(record) is record.headers is packed_headers_of(record)
    assert headers_of(record_with(0, None)) is None


def test_a_traceparent_alone_of_a_trace_that_is_not_recorded_is_kept_as_its_value() -> None:
    alone: list[list[Header] | None] = [[("traceparent", own)] for own in (DROPPED, RECORDED, DROPPED)]
    mixed: list[list[Header] | None] = [*alone, [("traceparent", DROPPED), ("tracestate", b"a=1")], None]

    assert packed(list(alone)) == [DROPPED, alone[1], DROPPED]
    assert packed(list(mixed)) == mixed


def test_a_trace_that_began_here_is_not_remote() -> None:
    ours, theirs = begun(DROPPED), lazily(DROPPED)

    assert isinstance(ours, LazyRoot)
    assert not trace.get_current_span(ours).get_span_context().is_remote
    assert trace.get_current_span(theirs).get_span_context().is_remote
    assert unsampled_traceparent(begun(DROPPED)) == unsampled_traceparent(lazily(DROPPED)) == DROPPED
