"""The judge finds each kind of broken promise: evidence of a good round, with one thing wrong at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from torture_kit.journal import Delivery, MemberEvent
from torture_kit.oracle import Committed, DeadLetter, Evidence, Incident, Sent, judge, lost
from torture_kit.plan import Fate, Plan, fate_of, is_malformed

from ottla.consumer.commit.offset_metadata import encode_finished

PLAN = replace(Plan.draw(seed=3, shell="threads", records=400, faults=6), keys=("a", "b"), partitions=2)
FIRST = PLAN.stages[0]


def good_evidence() -> Evidence:
    """A round without an incident: each input once through each stage, and everything committed."""
    evidence = Evidence()
    waiting = [
        Sent(PLAN.keys.index(key), 0, key, sequence, f"feed:{index}")
        for index in range(PLAN.records)
        for key, sequence in [PLAN.input_at(index)]
    ]
    at_s = 1_000.0
    for stage in PLAN.stages:
        ends = [0, 0]
        evidence.topics[stage.source] = []
        evidence.dead[stage.name] = []
        evidence.deliveries[stage.name] = []
        passed = []
        for sent in waiting:
            record = sent._replace(offset=ends[sent.partition])
            ends[sent.partition] += 1
            evidence.topics[stage.source].append(record)
            last = PLAN.last_stage_of(record.key, record.sequence)
            if last is not None and last[0] == stage.name:
                evidence.dead[stage.name].append(DeadLetter(record.key, record.sequence, last[1]))
                continue
            at_s += 0.01
            send_id = f"{stage.name}-1:{len(passed)}"
            evidence.deliveries[stage.name].append(
                Delivery(
                    at_s, f"{stage.name}-1", record.partition, record.offset, 1, send_id, record.key, record.sequence
                )
            )
            passed.append(record._replace(send_id=send_id))
        for partition, end in enumerate(ends):
            evidence.log_ends[stage.source, partition] = end
            evidence.commits[stage.group, stage.source, partition] = [Committed(at_s + 100, end, "")]
        waiting = passed
    evidence.topics[PLAN.stages[-1].target] = [
        sent._replace(offset=sum(other.partition == sent.partition for other in waiting[:index]))
        for index, sent in enumerate(waiting)
    ]
    return evidence


def deliver_again(evidence: Evidence, *, after_s: float, member: str = "other") -> Delivery:
    """The first stage sends its first record on a second time, by another member."""
    first = evidence.deliveries[FIRST.name][0]
    again = replace(first, at_s=first.at_s + after_s, member=member, send_id=f"{member}:1")
    evidence.deliveries[FIRST.name].append(again)
    out = evidence.topics[FIRST.target]
    end = evidence.log_ends[FIRST.target, first.partition]
    out.append(Sent(first.partition, end, first.key, first.sequence, again.send_id))
    evidence.log_ends[FIRST.target, first.partition] += 1
    key = (PLAN.stages[1].group, FIRST.target, first.partition)
    evidence.commits[key] = [Committed(evidence.commits[key][0].at_s, end + 1, "")]
    return first


def test_a_good_round_is_kept():
    evidence = good_evidence()
    assert len(evidence.dead[FIRST.name]) > 0
    assert judge(PLAN, evidence) == []


def swap_two(evidence: Evidence) -> None:
    records = evidence.topics[PLAN.stages[-1].target]
    one, other = [index for index, record in enumerate(records) if record.key == "a"][:2]
    records[one], records[other] = (
        records[one]._replace(offset=records[other].offset),
        records[other]._replace(offset=records[one].offset),
    )


def lose_one(evidence: Evidence) -> None:
    evidence.topics[PLAN.stages[-1].target].pop()


def lose_an_input(evidence: Evidence) -> None:
    evidence.topics[FIRST.source].pop()


def lose_a_dead_letter(evidence: Evidence) -> None:
    evidence.dead[FIRST.name].pop()


def bury_a_good_one(evidence: Evidence) -> None:
    sent = evidence.topics[FIRST.target][0]
    evidence.dead[FIRST.name].append(DeadLetter(sent.key, sent.sequence, "failed"))


def mislabel_a_dead_letter(evidence: Evidence) -> None:
    evidence.dead[FIRST.name][0] = evidence.dead[FIRST.name][0]._replace(kind="expired")


def log_one_send_twice(evidence: Evidence) -> None:
    records = evidence.topics[PLAN.stages[-1].target]
    records.append(records[-1]._replace(offset=records[-1].offset + 1))


def use_two_partitions(evidence: Evidence) -> None:
    records = evidence.topics[PLAN.stages[-1].target]
    records[-1] = records[-1]._replace(partition=1 - records[-1].partition, offset=10_000)


def repeat_without_reason(evidence: Evidence) -> None:
    deliver_again(evidence, after_s=0.5)


def repeat_what_was_finished_long_before(evidence: Evidence) -> None:
    first = deliver_again(evidence, after_s=60)
    kill_s = first.at_s + 30
    evidence.incidents.append(Incident(kind="kill", member=first.member, from_s=kill_s, until_s=kill_s))
    evidence.commits[FIRST.group, FIRST.source, first.partition][-1:] = [
        Committed(first.at_s + 61, evidence.log_ends[FIRST.source, first.partition], "")
    ]


def repeat_what_was_committed(evidence: Evidence) -> None:
    first = deliver_again(evidence, after_s=1)
    kill_s = first.at_s + 0.5
    evidence.incidents.append(Incident(kind="kill", member=first.member, from_s=kill_s, until_s=kill_s))
    commits = evidence.commits[FIRST.group, FIRST.source, first.partition]
    commits.insert(0, Committed(first.at_s + 0.1, first.offset + 1, ""))


def repeat_what_metadata_named(evidence: Evidence) -> None:
    first = evidence.deliveries[FIRST.name][5]
    evidence.deliveries[FIRST.name].append(replace(first, at_s=first.at_s + 0.2, member="other", has_failed=True))
    metadata = encode_finished([first.offset], 0)
    assert metadata
    commits = evidence.commits[FIRST.group, FIRST.source, first.partition]
    commits.insert(0, Committed(first.at_s + 0.1, 0, metadata))


def leave_one_uncommitted(evidence: Evidence) -> None:
    key = (FIRST.group, FIRST.source, 0)
    evidence.commits[key].append(Committed(2_000.0, evidence.log_ends[FIRST.source, 0] - 1, ""))


def deliver_one_early(evidence: Evidence) -> None:
    first = evidence.deliveries[FIRST.name][0]
    evidence.due_s[first.partition, first.offset] = first.at_s + 0.25


def deliver_a_delayed_one_at_once(evidence: Evidence) -> None:
    records = evidence.topics[FIRST.source]
    records.append(records[-1]._replace(key="late-1", sequence=0, send_id="feed:late"))


def deliver_one_that_was_cancelled(evidence: Evidence) -> None:
    evidence.cancelled[evidence.topics[FIRST.source][0].key] = (1_010.0, 1_009.5)


def hand_out_an_expired_one(evidence: Evidence) -> None:
    evidence.add_events([MemberEvent(1_000.0, "other", "expired_900_ms_before:orders-0@3")], session_timeout_s=3)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (deliver_one_early, "0.250 s before it was due"),
        (deliver_a_delayed_one_at_once, "does not say when it was due"),
        (deliver_one_that_was_cancelled, "its cancel was acknowledged 0.500 s before"),
        (hand_out_an_expired_one, "was given a record that had expired_900_ms"),
        (swap_two, "for the first time behind"),
        (lose_one, "is lost"),
        (lose_an_input, "is not in the topic"),
        (lose_a_dead_letter, "should be a dead letter and is not"),
        (bury_a_good_one, "although it can be handled"),
        (mislabel_a_dead_letter, "is dead as 'expired'"),
        (log_one_send_twice, "in the log 2 times"),
        (use_two_partitions, "is also in partition"),
        (repeat_without_reason, "nothing had happened to"),
        (repeat_what_was_finished_long_before, "commits are every"),
        (repeat_what_was_committed, "was committed"),
        (repeat_what_metadata_named, "named it as finished"),
        (leave_one_uncommitted, "stopped gracefully with"),
    ],
)
def test_a_broken_promise_is_found(spoil: Callable[[Evidence], None], says: str):
    evidence = good_evidence()
    spoil(evidence)
    assert any(says in violation for violation in judge(PLAN, evidence)), judge(PLAN, evidence)


def test_what_was_in_flight_when_its_member_was_killed_may_come_again():
    evidence = good_evidence()
    first = deliver_again(evidence, after_s=5)
    kill_s = first.at_s + 0.2
    evidence.incidents.append(Incident(kind="kill", member=first.member, from_s=kill_s, until_s=kill_s))
    assert judge(PLAN, evidence) == []


def test_what_a_member_did_before_it_was_thrown_out_may_come_again():
    evidence = good_evidence()
    first = deliver_again(evidence, after_s=5)
    evidence.add_events([MemberEvent(first.at_s + 4, first.member, "partitions_lost")], session_timeout_s=3)
    assert judge(PLAN, evidence) == []


def test_what_came_out_of_a_retry_topic_may_be_committed_in_its_own():
    evidence = good_evidence()
    first = deliver_again(evidence, after_s=1)
    evidence.deliveries[FIRST.name].remove(first)
    commits = evidence.commits[FIRST.group, FIRST.source, first.partition]
    commits.insert(0, Committed(first.at_s + 0.5, first.offset + 1, ""))
    name = (FIRST.name, first.partition, first.offset)
    evidence.retried[name] = [first.at_s + 2]
    assert any("was committed" in violation for violation in judge(PLAN, evidence)), "it was not there yet"
    evidence.retried[name] = [first.at_s + 0.4]
    assert judge(PLAN, evidence) == []


def test_a_copy_in_a_retry_topic_explains_a_repeat_only_if_its_writer_may_have_ended_before_the_commit():
    evidence = good_evidence()
    first = deliver_again(evidence, after_s=1)
    evidence.retried[FIRST.name, first.partition, first.offset] = [first.at_s - 0.5]
    assert any("nothing had happened" in violation for violation in judge(PLAN, evidence))
    kill_s = first.at_s - 0.4
    evidence.incidents.append(Incident(kind="kill", member=f"{FIRST.name}-0", from_s=kill_s, until_s=kill_s))
    assert judge(PLAN, evidence) == []
    evidence.incidents[-1] = replace(evidence.incidents[-1], member=f"{PLAN.stages[1].name}-0")
    assert any("nothing had happened" in violation for violation in judge(PLAN, evidence)), "of another stage"


def left_uncommitted_from(evidence: Evidence, *, count: int) -> Delivery:
    """The last records of a partition are not committed. The delivery of the first of them."""
    deliveries = [one for one in evidence.deliveries[FIRST.name] if one.partition == 0]
    first = deliveries[-count]
    evidence.commits[FIRST.group, FIRST.source, 0].append(Committed(2_000.0, first.offset, ""))
    return first


def test_what_a_member_handled_right_before_it_was_killed_may_be_uncommitted_in_the_end():
    evidence = good_evidence()
    first = left_uncommitted_from(evidence, count=3)
    kill_s = first.at_s + 0.2
    evidence.incidents.append(Incident(kind="kill", member=first.member, from_s=kill_s, until_s=kill_s))
    assert judge(PLAN, evidence) == []


def test_what_comes_a_second_time_when_everything_is_through_may_be_uncommitted():
    evidence = good_evidence()
    records = [record for record in evidence.topics[FIRST.target] if record.partition == 0]
    end = evidence.log_ends[FIRST.target, 0]
    evidence.topics[FIRST.target].append(records[-1]._replace(offset=end, send_id="other:1"))
    evidence.log_ends[FIRST.target, 0] = end + 1
    at_s = evidence.deliveries[FIRST.name][-1].at_s
    evidence.incidents.append(Incident(kind="stall", member="other", from_s=at_s, until_s=at_s + 5))
    given = next(one for one in evidence.deliveries[FIRST.name] if one.sequence == records[-1].sequence)
    evidence.deliveries[FIRST.name].append(replace(given, at_s=at_s + 1, member="other", send_id="other:1"))
    assert judge(PLAN, evidence) == []


def test_what_was_handled_again_by_a_member_that_stopped_gracefully_must_be_committed():
    evidence = good_evidence()
    first = left_uncommitted_from(evidence, count=3)
    kill_s = first.at_s + 0.2
    evidence.incidents.append(Incident(kind="kill", member=first.member, from_s=kill_s, until_s=kill_s))
    evidence.deliveries[FIRST.name].append(replace(first, at_s=kill_s + 1, member="other", has_failed=True))
    (violation,) = judge(PLAN, evidence)
    assert f"stopped gracefully with {first.offset} of" in violation


def test_an_input_with_a_time_to_live_may_be_dead_as_expired_and_no_other_one():
    plan = replace(PLAN, has_wishes=True)
    found = set()
    for sent in good_evidence().topics[FIRST.source][:25]:
        evidence = good_evidence()
        evidence.dead[FIRST.name] = [DeadLetter(sent.key, sent.sequence, "expired")]
        name = f"({sent.key} {sent.sequence})"
        is_kept = not any(name in violation for violation in lost(plan, FIRST, evidence))
        assert is_kept == (plan.wish_of(sent.key, sent.sequence).expires_s is not None)
        found.add(is_kept)
    assert found == {True, False}


def test_a_cancel_that_came_too_late_is_no_violation():
    evidence = good_evidence()
    evidence.cancelled[evidence.topics[FIRST.source][0].key] = (1_010.0, 1_010.5)
    assert judge(PLAN, evidence) == []


def test_inputs_are_spread_over_the_wishes():
    plan = replace(PLAN, has_wishes=True, keys=tuple(f"key-{number}" for number in range(24)))
    inputs = [plan.input_at(index) for index in range(1_000)]
    assert len(set(inputs)) == 1_000
    wishes = [plan.wish_of(key, sequence) for key, sequence in inputs]
    assert sum(wish.delay_s is not None for wish in wishes) == 200
    assert 150 < sum(wish.expires_s is not None for wish in wishes) < 350
    assert 150 < sum(wish.is_urgent for wish in wishes) < 500
    assert sum(plan.is_followed_by_a_cancelled_one(index) for index in range(1_000)) == 13
    assert all(wish == type(wish)() for wish in (PLAN.wish_of(key, sequence) for key, sequence in inputs))


def test_a_seed_is_a_plan():
    one, same = (Plan.draw(seed=7, shell="asyncio", records=100, faults=9) for _ in range(2))
    assert one == same
    assert one != Plan.draw(seed=8, shell="asyncio", records=100, faults=9)
    inputs = [one.input_at(index) for index in range(500)]
    assert len(set(inputs)) == 500
    for key in one.keys:
        sequences = [sequence for name, sequence in inputs if name == key]
        assert sequences == sorted(sequences)


def test_fates_are_spread_as_planned():
    fates = [fate_of(1, "enrich", f"key-{number % 20}", number)[0] for number in range(20_000)]
    assert 40 <= fates.count(Fate.INVALID) <= 80
    assert 20 <= fates.count(Fate.BROKEN) <= 60
    assert 300 <= fates.count(Fate.FLAKY) <= 500
    assert 90 <= sum(is_malformed(1, "key", number) for number in range(20_000)) <= 180
