"""Alterations of quotas, in whatever order they come, leave what a plain table would hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.controller.client_quotas import QuotaAlteration, alter
from broker_embedded.metadata import serde
from broker_embedded.metadata.delta import image_after
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import QuotaEntity, quota_entity
from broker_embedded.quotas.filters import MatchType, QuotaFilter

KEYS = ("producer_byte_rate", "request_percentage")
names = st.none() | st.sampled_from(["a", "b"])
entities = st.dictionaries(st.sampled_from(["user", "client-id"]), names, min_size=1).map(
    lambda parts: quota_entity(parts.items())
)
values = st.none() | st.integers(-1, 3).map(float)
alterations = st.builds(
    QuotaAlteration, entity=entities, ops=st.lists(st.tuples(st.sampled_from([*KEYS, "speed"]), values), max_size=3)
)


def is_possible(alteration: QuotaAlteration) -> bool:
    keys = [key for key, _ in alteration.ops]
    has_bad_value = any(value is not None and (value <= 0 or key == "speed") for key, value in alteration.ops)
    return len(set(keys)) == len(keys) and not has_bad_value


@given(requests=st.lists(st.lists(alterations, max_size=4, unique_by=lambda each: each.entity), max_size=10))
def test_what_can_be_done_is_done_and_nothing_else(requests: list[list[QuotaAlteration]]) -> None:
    image = ClusterImage(cluster_id="c")
    table: dict[QuotaEntity, dict[str, float]] = {}
    for request in requests:
        records, outcomes = alter(image, request)
        assert {entity for entity, error in outcomes.items() if error is None} == {
            each.entity for each in request if is_possible(each)
        }
        kept = [serde.decode(serde.encode(record)) for record in records]
        assert kept == records
        image = image_after(image, records)
        for each in filter(is_possible, request):
            held = {**table.pop(each.entity, {}), **dict(each.ops)}
            if any(value is not None for value in held.values()):
                table[each.entity] = {key: value for key, value in held.items() if value is not None}
        assert image.client_quotas == table
        assert alter(image, [each for each in request if is_possible(each)])[0] == []  # nothing is recorded twice


@given(entity=entities, wanted=st.dictionaries(st.sampled_from(["user", "client-id"]), names), is_strict=st.booleans())
def test_a_filter_of_names_finds_entities_that_have_them(
    entity: QuotaEntity, wanted: dict[str, str | None], is_strict: bool
) -> None:
    components = [(kind, MatchType.DEFAULT if name is None else MatchType.EXACT, name) for kind, name in wanted.items()]
    has_all = wanted.items() <= dict(entity).items()
    expected = has_all and (len(entity) == len(wanted) or not is_strict)
    assert QuotaFilter(components, is_strict=is_strict).matches(entity) is expected
