"""What a handler sent for one run: kept as lists, read one by one as outputs."""

from __future__ import annotations

import pytest

from ottla import LifecycleError
from ottla.once.outputs import OutputRecord, Outputs, by_topic
from ottla.producer.bulk import Outgoing
from ottla.producer.serializing import Serializer


def outputs() -> Outputs:
    return Outputs(Serializer(key=None, value=None), now_ms=0, may_wait=True)


def test_each_record_is_an_output_with_the_offset_that_it_was_sent_for() -> None:
    made = outputs()
    made.of(7).send("a", b"1", key=b"k", headers=[("h", b"v")], partition=3, timestamp_ms=5)
    made.of(8).send("b", bytearray(b"2"))
    sent = made.end()
    assert list(sent) == [
        OutputRecord("a", Outgoing(b"1", b"k", [("h", b"v")], 3, 5), 7),
        OutputRecord("b", Outgoing(b"2", None, (), None, None), 8),
    ]
    assert sent[-1].offset == 8
    assert [one.topic for one in sent[:1]] == ["a"]
    with pytest.raises(LifecycleError, match="after the handler had returned"):
        made.of(9).send("a", b"3")


def test_the_records_of_works_are_in_their_order_for_each_topic() -> None:
    one, mixed = outputs(), outputs()
    for number in range(2):
        one.of(number).send("a", b"%d" % number)
        mixed.of(number).send("b", b"%d" % (2 + number))
        mixed.of(number).send("a", b"%d" % (4 + number))
    letter = [OutputRecord("a", Outgoing(b"letter"), 9)]
    found = by_topic([one.end(), mixed.end(), letter, outputs().end()])
    assert {topic: [record[0] for record in records] for topic, records in found.items()} == {
        "a": [b"0", b"1", b"4", b"5", b"letter"],
        "b": [b"2", b"3"],
    }


def test_what_a_batch_of_one_sent_was_sent_for_its_record() -> None:
    made = outputs()
    made.of(4).send("a", b"of the record before")
    made.of(None).send("a", b"of the batch")
    made.sent.for_record(5)
    assert [output.offset for output in made.end()] == [4, 5]
