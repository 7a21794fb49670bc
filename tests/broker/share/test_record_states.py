"""The table of record states: what the code allows is what Kafka allows, and what the page says."""

from __future__ import annotations

from pathlib import Path

from broker_embedded.share.states import AFTER_ACKNOWLEDGE, FINAL, PERSISTED, TRANSITIONS, AcknowledgeType, RecordState

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "share_groups.md"


def test_the_page_has_the_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for state, following in TRANSITIONS.items():
        for after, reason in following.items():
            assert f"| {state.name} {state:d} | {after.name} {after:d} | {reason} |" in text


def test_the_numbers_are_those_of_kafka() -> None:
    assert [each.value for each in RecordState] == [0, 1, 2, 3, 4]
    assert [each.name for each in AcknowledgeType] == ["GAP", "ACCEPT", "RELEASE", "REJECT", "RENEW"]


def test_settled_records_stay_as_they_are() -> None:
    assert {RecordState.ACKNOWLEDGED, RecordState.ARCHIVED} == FINAL
    assert RecordState.ACQUIRED not in PERSISTED


def test_every_acknowledgement_leads_where_the_table_allows() -> None:
    assert set(AFTER_ACKNOWLEDGE) == set(AcknowledgeType)
    assert set(AFTER_ACKNOWLEDGE.values()) <= set(TRANSITIONS[RecordState.ACQUIRED])
