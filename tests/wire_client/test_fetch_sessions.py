"""What a fetch says and what its answer means when the broker remembers what it was asked for (KIP-227)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.common.clock import SystemClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.replication.fetch_session import FetchSessionCache
from broker_embedded.server.fetch.request import session_and_partitions
from ottla.records import TopicPartition
from ottla.wire_client import wire_settings
from ottla.wire_client.fetching.consumer_fetch_plan import ConsumerFetchPlan, FetchResult, PlannedFetch
from ottla.wire_client.fetching.fetch_budget import Share
from ottla.wire_client.fetching.single_partition_fetch import encode_single_partition_fetch, rack_at_the_end
from ottla_wire.protocol import ApiKey, ErrorCode, codec
from ottla_wire.records import RecordData, encode_batch

NODE = 1
PLACES = [TopicPartition("orders", number) for number in range(4)]
A, B, C, D = PLACES
IDS = {"orders": bytes(15) + b"\x07"}
BY_ID, BY_NAME = 13, 12
SHARE = Share(most_bytes=10_000_000, partition_bytes=1_000_000)


class Log:
    """A broker's answers, from its own bookkeeping of sessions. Each record is a batch of its own; one comes of each
    partition."""

    def __init__(self, *, version: int = BY_ID, slots: int = 100) -> None:
        self.version = version
        self.ids = dict(IDS)
        self.ends = dict.fromkeys(PLACES, 0)
        self.told: dict[tuple[int, TopicPartition], int] = {}
        self.sessions = FetchSessionCache(slots=slots, clock=SystemClock())
        self.asked: list[Any] = []

    def answer(self, body: dict[str, Any] | bytes) -> Any:
        request = codec.decode_request(ApiKey.FETCH, self.version, encoded(body, self.version))
        self.asked.append(request)
        try:
            session, wanted = session_and_partitions(self.sessions, request, self.version)
        except BrokerError as error:
            return self.response({"error_code": int(error.code)})
        session_id = 0 if session is None else session.session_id
        sends_all = session is None or session.is_full_answer
        entries: dict[Any, list[dict[str, Any]]] = {}
        for each in wanted:
            place = TopicPartition("orders", each.partition)
            entry: dict[str, Any] = {"partition_index": each.partition, "high_watermark": self.ends[place]}
            if self.version >= BY_ID and each.topic != self.ids["orders"]:
                entry["error_code"] = ErrorCode.UNKNOWN_TOPIC_ID
            elif each.fetch_offset > self.ends[place]:
                entry["error_code"] = ErrorCode.OFFSET_OUT_OF_RANGE
            elif each.fetch_offset < self.ends[place]:
                records = [RecordData(each.fetch_offset, 1, None, b"v")]
                entry["records"] = encode_batch(records, base_offset=each.fetch_offset)
            elif not sends_all and self.told.get((session_id, place)) == self.ends[place]:
                continue
            self.told[session_id, place] = self.ends[place]
            entries.setdefault(each.topic, []).append(entry)
            if session is not None and "records" in entry:
                session.rotate((each.topic, each.partition))
        if session is not None:
            session.is_full_answer = False
        key = "topic_id" if self.version >= BY_ID else "topic"
        responses = [{key: topic, "partitions": found} for topic, found in entries.items()]
        return self.response({"session_id": session_id, "responses": responses})

    def response(self, body: dict[str, Any]) -> Any:
        return codec.decode_response(
            ApiKey.FETCH, self.version, codec.encode_response(ApiKey.FETCH, self.version, body)
        )

    def named(self) -> set[int]:
        """The partitions that the last request named."""
        return {each.partition for topic in self.asked[-1].topics for each in topic.partitions}

    def forgotten(self) -> set[int]:
        """Those that it let the broker forget."""
        return {each for topic in self.asked[-1].forgotten_topics_data for each in topic.partitions}


def encoded(body: dict[str, Any] | bytes, version: int = BY_ID) -> bytes:
    return body if isinstance(body, bytes) else codec.encode_request(ApiKey.FETCH, version, body)


class Reader:
    """A plan and what it has read."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.plan = ConsumerFetchPlan(wire_settings({"bootstrap.servers": "127.0.0.1:1"}))
        self.read: list[tuple[TopicPartition, int]] = []

    def ask(self) -> PlannedFetch | None:
        ids = self.log.ids if self.log.version >= BY_ID else None
        return self.plan.ask(NODE, self.plan.wanted(), ids=ids, max_wait_ms=500, share=SHARE)

    def ask_on(self) -> PlannedFetch | None:
        """As `ask`, the short way where it can be gone. It says what the long way says, and leaves behind what that
        one leaves."""
        plan = deepcopy(self.plan)
        ask = self.plan.ask_on(NODE, max_wait_ms=500, share=SHARE)
        long = Reader(self.log)
        long.plan = plan if ask is not None else self.plan
        other = long.ask()
        if ask is None:
            return other
        assert other is not None
        assert encoded(other.body) == ask.body
        assert other._replace(body=ask.body) == ask
        assert deepcopy(self.plan).close() == deepcopy(plan).close()
        assert self.plan.wanted() == plan.wanted() == []
        return ask

    def take(self, ask: PlannedFetch, response: Any) -> FetchResult:
        found = self.plan.answered(ask, response)
        for segment, turn in found.segments:
            place = TopicPartition(segment.topic, segment.partition)
            self.read.append((place, segment.start))
            self.plan.advance(segment, turn, segment.start + 1)
        return found

    def fetch(self) -> FetchResult:
        ask = self.ask()
        assert ask is not None
        return self.take(ask, self.log.answer(ask.body))


@pytest.fixture(params=[BY_NAME, BY_ID], ids=["by name", "by id"])
def log(request: pytest.FixtureRequest) -> Log:
    return Log(version=request.param)


@pytest.fixture
def reader(log: Log) -> Reader:
    made = Reader(log)
    for place in (A, B, C):
        made.plan.add(place, 0)
    return made


def test_only_what_changes_is_named(log: Log, reader: Reader) -> None:
    reader.fetch()
    assert log.named() == {0, 1, 2}
    reader.fetch()
    assert (log.named(), log.forgotten()) == (set(), set())
    log.ends[B] = 1
    reader.fetch()
    assert (log.named(), reader.read) == (set(), [(B, 0)])
    reader.fetch()
    assert (log.named(), reader.plan.position(B)) == ({1}, 1)
    assert [request.session_epoch for request in log.asked] == [0, 1, 2, 3]
    assert len(log.sessions) == 1


def test_a_paused_partition_is_forgotten_and_named_again(log: Log, reader: Reader) -> None:
    reader.fetch()
    reader.plan.pause([A])
    reader.fetch()
    assert (log.named(), log.forgotten()) == (set(), {0})
    log.ends[A] = 1
    reader.fetch()
    assert reader.read == []
    reader.plan.resume([A])
    reader.fetch()
    assert (log.named(), reader.read) == ({0}, [(A, 0)])


def test_what_is_paused_and_resumed_between_two_fetches_is_not_forgotten(log: Log, reader: Reader) -> None:
    reader.fetch()
    reader.plan.pause([A])
    reader.plan.resume([A])
    reader.fetch()
    assert (log.named(), log.forgotten()) == ({0}, set())


def test_partitions_that_come_are_added_and_those_that_go_are_forgotten(log: Log, reader: Reader) -> None:
    reader.fetch()
    reader.plan.remove([A])
    reader.plan.add(D, 0)
    reader.plan.seek(C, 5)
    reader.fetch()
    assert (log.named(), log.forgotten()) == ({2, 3}, {0})


def test_a_batch_that_is_cut_off_is_asked_for_with_more_room(log: Log, reader: Reader) -> None:
    reader.fetch()
    before = reader.plan._places[A].max_bytes
    log.ends[A] = 1
    ask = reader.ask()
    assert ask is not None
    ((segment, turn),) = reader.plan.answered(ask, log.answer(ask.body)).segments
    reader.plan.advance(segment, turn, segment.start)
    reader.fetch()
    ((entry,),) = (topic.partitions for topic in log.asked[-1].topics)
    assert (entry.partition, entry.partition_max_bytes) == (0, 2 * before)
    assert reader.read == [(A, 0)]


def test_nothing_is_asked_while_all_is_paused(log: Log, reader: Reader) -> None:
    reader.fetch()
    reader.plan.pause([A, B, C])
    assert reader.ask() is None
    assert reader.plan.nodes() == []


def test_what_a_seek_made_old_is_dropped_though_the_session_gives_it(log: Log, reader: Reader) -> None:
    reader.fetch()
    log.ends[A] = 5
    ask = reader.ask()
    assert ask is not None
    response = log.answer(ask.body)
    reader.plan.seek(A, 3)
    reader.take(ask, response)
    assert reader.read == []
    reader.fetch()
    assert reader.read == [(A, 3)]


def test_an_offset_out_of_range_is_looked_up_and_not_asked_for_again(log: Log, reader: Reader) -> None:
    reader.plan.seek(A, 9)
    reader.fetch()
    assert list(reader.plan.unplaced()) == [A]
    reader.fetch()
    assert (log.named(), log.forgotten()) == (set(), {0})


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 1),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 1),
    ],
)
def test_a_session_that_the_broker_refuses_is_followed_by_another(
    log: Log, reader: Reader, code: ErrorCode, session_id: int
) -> None:
    reader.fetch()
    ask = reader.ask()
    assert ask is not None
    found = reader.take(ask, log.response({"error_code": int(code)}))
    assert (found.moved, found.errors) == (set(), {}), "asked again at once, and of the same leaders"
    log.ends[A] = 1
    reader.fetch()
    assert (log.asked[-1].session_id, log.asked[-1].session_epoch, log.named()) == (session_id, 0, {0, 1, 2})
    assert reader.read == [(A, 0)]
    reader.fetch()
    assert (log.asked[-1].session_epoch, log.named()) == (1, {0})


def test_a_full_request_that_is_refused_is_an_error_like_others(log: Log, reader: Reader) -> None:
    ask = reader.ask()
    assert ask is not None
    found = reader.take(ask, log.response({"error_code": int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)}))
    assert found.moved == {"orders"}


def test_a_broker_without_room_is_told_everything_each_time() -> None:
    log = Log(slots=0)
    reader = Reader(log)
    for place in (A, B):
        reader.plan.add(place, 0)
    log.ends[A] = 2
    for _ in range(3):
        reader.fetch()
        assert (log.asked[-1].session_id, log.asked[-1].session_epoch, log.named()) == (0, 0, {0, 1})
    assert reader.read == [(A, 0), (A, 1)]


def test_whoever_got_data_is_named_behind_the_others() -> None:
    log = Log(slots=0)
    reader = Reader(log)
    for place in (A, B, C):
        reader.plan.add(place, 0)
    log.ends[A] = 2
    reader.fetch()
    reader.fetch()
    assert [each.partition for each in log.asked[-1].topics[0].partitions] == [1, 2, 0]


def test_after_a_lost_connection_the_next_request_ends_the_session(log: Log, reader: Reader) -> None:
    reader.fetch()
    ask = reader.ask()
    assert ask is not None
    log.answer(ask.body)  # it arrives, and its answer does not
    assert reader.plan.lost(NODE) == {"orders"}
    reader.fetch()
    assert (log.asked[-1].session_id, log.asked[-1].session_epoch, log.named()) == (1, 0, {0, 1, 2})
    assert len(log.sessions) == 1


def test_a_topic_that_was_made_anew_is_named_by_its_new_id() -> None:
    log = Log()
    reader = Reader(log)
    reader.plan.add(A, 0)
    reader.fetch()
    log.ids["orders"] = bytes(15) + b"\x08"
    log.ends[A] = 1
    assert reader.fetch().moved == {"orders"}
    reader.fetch()
    (forgotten,) = log.asked[-1].forgotten_topics_data
    assert (bytes(forgotten.topic_id), forgotten.partitions) == (IDS["orders"], [0])
    assert reader.read == [(A, 0)]


def test_topics_without_an_id_begin_a_session_of_their_own() -> None:
    log = Log()
    reader = Reader(log)
    reader.plan.add(A, 0)
    reader.fetch()
    reader.plan.add(B, 0)
    log.version = BY_NAME
    ask = reader.ask()
    assert ask is not None
    assert isinstance(ask.body, dict)
    assert (ask.is_by_id, ask.is_full, ask.body["session_id"]) == (False, True, 1)
    assert reader.plan.wanted() == [A]


def test_leaders_are_asked_for_again_without_losing_the_session(log: Log, reader: Reader) -> None:
    reader.fetch()
    reader.plan.ask_leaders_again()
    assert reader.plan.wanted() == [A, B, C]
    reader.fetch()
    assert (log.asked[-1].session_epoch, log.named(), log.forgotten()) == (1, {0, 1, 2}, set())


def test_an_answer_of_a_broker_that_reads_no_more_is_dropped_where_another_does(log: Log, reader: Reader) -> None:
    reader.fetch()
    ask = reader.ask()
    assert ask is not None
    reader.plan.ask_leaders_again()
    ids = log.ids if log.version >= BY_ID else None
    assert reader.plan.ask(NODE + 1, [A], ids=ids, max_wait_ms=500) is not None
    log.ends[A] = log.ends[B] = 1
    reader.take(ask, log.answer(ask.body))
    assert reader.read == [(B, 0)]
    reader.fetch()
    assert log.forgotten() == {0}


def test_the_last_request_ends_the_session(log: Log, reader: Reader) -> None:
    reader.fetch()
    ((node_id, body),) = reader.plan.close().items()
    assert (node_id, len(log.sessions)) == (NODE, 1)
    assert log.answer(body).session_id == 0
    assert len(log.sessions) == 0
    assert reader.plan.close() == {}


def trickling(log: Log, reader: Reader) -> None:
    """One record has come, and its partition is to be read on."""
    for place in (A, B, C):
        log.ends[place] = 0
    reader.fetch()
    log.ends[A] = 1
    reader.fetch()
    assert reader.read == [(A, 0)]


def test_a_partition_that_got_a_record_is_read_on_the_short_way() -> None:
    log = Log()
    reader = Reader(log)
    for place in (A, B, C):
        reader.plan.add(place, 0)
    trickling(log, reader)
    ask = reader.ask_on()
    assert ask is not None
    assert isinstance(ask.body, bytes)
    log.ends[A] = 2
    reader.take(ask, log.answer(ask.body))
    assert reader.read == [(A, 0), (A, 1)]
    assert (log.named(), log.forgotten()) == ({0}, set())


@pytest.mark.parametrize("what", ["paused", "sought", "gone", "another too", "leaders", "lost", "moved", "large"])
def test_the_short_way_is_not_gone_where_there_is_more_to_say(what: str) -> None:
    log = Log()
    reader = Reader(log)
    plan = reader.plan
    for place in (A, B, C):
        plan.add(place, 0)
    trickling(log, reader)
    if what == "paused":
        plan.pause([A])
    elif what == "sought":
        plan.seek(A, 0)
    elif what == "gone":
        plan.remove([A])
    elif what == "another too":
        plan.add(D, 0)
    elif what == "leaders":
        plan.ask_leaders_again()
    elif what == "lost":
        plan.lost(NODE)
    before = plan.wanted()
    node_id = NODE + 1 if what == "moved" else NODE
    if what == "large":
        ask = reader.ask()
        assert ask is not None
        log.ends[A] = 2
        answered = plan.answered(ask, log.answer(ask.body))
        ((segment, turn),) = answered.segments
        plan.advance(segment, turn, segment.start)  # its next batch was cut off, and is to have more room
        before = [A]
    assert plan.ask_on(node_id, max_wait_ms=500, share=SHARE) is None
    assert plan.wanted() == before


def test_topics_that_go_by_name_are_not_read_on_the_short_way() -> None:
    log = Log(version=BY_NAME)
    reader = Reader(log)
    for place in (A, B, C):
        reader.plan.add(place, 0)
    trickling(log, reader)
    assert reader.plan.ask_on(NODE, max_wait_ms=500, share=SHARE) is None


INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


@given(
    waits=INT32,
    most=INT32,
    level=st.integers(0, 1),
    session=st.tuples(INT32, INT32),
    topic_id=st.binary(min_size=16, max_size=16),
    place=st.tuples(INT32, INT64, INT32),
    rack=st.text(max_size=200),
)
def test_the_short_way_says_what_the_codec_says(
    waits: int,
    most: int,
    level: int,
    session: tuple[int, int],
    topic_id: bytes,
    place: tuple[int, int, int],
    rack: str,
) -> None:
    partition, fetch_offset, partition_max_bytes = place
    entry = {"partition": partition, "fetch_offset": fetch_offset, "partition_max_bytes": partition_max_bytes}
    body = {
        "max_wait_ms": waits,
        "min_bytes": 1,
        "max_bytes": most,
        "isolation_level": level,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic_id": topic_id, "partitions": [entry]}],
        "rack_id": rack,
    }
    assert encoded(body) == encode_single_partition_fetch(
        max_wait_ms=waits,
        max_bytes=most,
        isolation_level=level,
        session_id=session[0],
        session_epoch=session[1],
        topic_id=topic_id,
        partition=partition,
        fetch_offset=fetch_offset,
        partition_max_bytes=partition_max_bytes,
        rack=rack_at_the_end(rack),
    )


CHANGES = ["append", "pause", "resume", "seek", "add", "remove", "forget"]
FETCHES = ["fetch", "fetch", "cut", "cut-late", "meanwhile", "trickle"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "fetch",
                "fetch",
                "trickle",
                "trickle",
                "pause",
                "resume",
                "seek",
                "add",
                "remove",
                "forget",
                "cut",
                "cut-late",
                "meanwhile",
            ]
        ),
        st.sampled_from(PLACES),
        st.integers(0, 3),
    ),
    max_size=60,
)


ROOM_FOR_ALL = 100


@given(STEPS, st.sampled_from([BY_NAME, BY_ID]), st.sampled_from([0, 1, ROOM_FOR_ALL]))
def test_whatever_happens_each_partition_is_read_in_order_and_to_its_end(
    steps: list[tuple[str, TopicPartition, int]], version: int, slots: int
) -> None:
    log = Log(version=version, slots=slots)
    reader = Reader(log)
    plan = reader.plan
    wanted: dict[TopicPartition, int] = {}

    def change(what: str, place: TopicPartition, number: int) -> None:
        if what == "append":
            log.ends[place] += number
        elif what == "pause":
            plan.pause([place])
        elif what == "resume":
            plan.resume([place])
        elif what == "seek" and place in wanted:
            wanted[place] = min(number, log.ends[place])
            plan.seek(place, wanted[place])
        elif what == "add" and place not in wanted:
            wanted[place] = 0
            plan.add(place, 0)
        elif what == "remove":
            wanted.pop(place, None)
            plan.remove([place])
        elif what == "forget":
            log.sessions.remove(number)

    def check() -> None:
        for place, offset in reader.read:
            assert offset == wanted[place], "in order, none twice, none left out"
            wanted[place] += 1
        reader.read.clear()
        assert {place: plan.position(place) for place in wanted} == wanted

    for what, place, number in steps:
        if what in FETCHES:
            ask = reader.ask_on() if what == "trickle" else reader.ask()
            if ask is None:
                continue
            if what == "cut":
                plan.lost(NODE)
                continue
            response = log.answer(ask.body)
            if what == "cut-late":
                plan.lost(NODE)
                continue
            if what == "meanwhile":
                change(["pause", "seek", "remove", "resume"][number], place, number)
            reader.take(ask, response)
        else:
            change(what, place, number)
        check()
    plan.resume(PLACES)
    for _ in range(sum(log.ends.values()) * 2 + 3):
        if wanted:
            reader.fetch()
            check()
    assert wanted == {place: log.ends[place] for place in wanted}
    if wanted and slots == ROOM_FOR_ALL:  # a session whose first answer was lost keeps its slot for minutes
        reader.fetch()
        reader.fetch()
        assert (log.named(), log.forgotten()) == (set(), set()), "nothing to say, nothing said"
