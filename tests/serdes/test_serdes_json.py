from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ConfigError, SerializationError
from ottla.records import Malformed
from ottla.serdes import Json, SerdeContext

FLAT = ["Flat", "FlatStruct", "FlatDict", "FlatTuple", "FlatModel"]
CTX = SerdeContext("orders")

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(json_values)
def test_any_json_value_comes_back(value: Any) -> None:
    data = Json().serialize(value, CTX)
    assert Json().deserialize(data, CTX) == value
    if value is not None:
        assert json.loads(data or b"") == value


@given(st.binary())
def test_no_bytes_make_it_raise(data: bytes) -> None:
    try:
        wanted = json.loads(data.decode())  # of bytes it would take UTF-16 too
    except ValueError:
        found = Json().deserialize(data, CTX)
        assert isinstance(found, Malformed)
        assert (found.raw, found.kind) == (data, "malformed")
    else:
        if not (isinstance(wanted, float) and not math.isfinite(wanted)):
            assert Json().deserialize(data, CTX) == wanted


def test_nesting_beyond_the_interpreters_stack_is_malformed() -> None:
    found = Json().deserialize(b"[" * 1_000_000, CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.error_type) == ("malformed", "RecursionError")


@pytest.mark.parametrize("name", FLAT)
def test_every_kind_of_class_decodes_to_itself(models: SimpleNamespace, name: str) -> None:
    model = getattr(models, name)
    value = model(id=1, name="a", amount=2.5)
    serde = Json(model)
    data = serde.serialize(value, CTX)
    assert serde.deserialize(data, CTX) == value
    assert serde.deserialize_many([data, None, data], CTX) == [value, None, value]
    assert type(serde.deserialize(data, CTX)) is (dict if name == "FlatDict" else model)


@pytest.mark.parametrize("name", FLAT)
def test_a_wrong_type_is_invalid_and_names_the_field(models: SimpleNamespace, name: str) -> None:
    data = b"[1, 5]" if name == "FlatTuple" else b'{"id": 1, "name": 5}'
    found = Json(getattr(models, name)).deserialize(data, CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.part, found.raw) == ("invalid", "value", data)
    assert name in found.error
    assert ("$[1]" if name == "FlatTuple" else "$.name") in found.error


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("data", [b"", b"\xff", b'{"id": "x"', b'{"id": -1, "name": "a"} x', b"<xml/>"])
def test_bytes_that_are_not_json_are_malformed_whatever_rule_they_break_first(
    models: SimpleNamespace, name: str, data: bytes
) -> None:
    found = Json(getattr(models, name)).deserialize(data, CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.raw) == ("malformed", data)
    assert found.error.startswith("not JSON: ")


def test_a_rule_of_post_init_is_invalid_under_the_name_of_its_own_error(models: SimpleNamespace) -> None:
    found = Json(models.Flat).deserialize(b'{"id": -5, "name": "a"}', CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.error_type) == ("invalid", "ValueError")
    assert found.error == "not a valid Flat: id is negative: -5"


def test_a_post_init_that_fails_in_an_unforeseen_way_is_invalid_too() -> None:
    @dataclasses.dataclass
    class Broken:
        a: int

        def __post_init__(self) -> None:
            raise ZeroDivisionError("oops")

    found = Json(Broken).deserialize_many([b'{"a": 1}'], CTX)[0]
    assert isinstance(found, Malformed)
    assert (found.kind, found.error_type) == ("invalid", "ZeroDivisionError")


def test_a_pydantic_refusal_lists_every_broken_rule(models: SimpleNamespace) -> None:
    found = Json(models.FlatModel).deserialize(b'{"id": -5}', CTX)
    assert isinstance(found, Malformed)
    assert (found.kind, found.error_type) == ("invalid", "ValidationError")
    assert "`$.id`" in found.error
    assert "`$.name`" in found.error


def test_one_bad_record_of_a_batch_leaves_the_others_alone(models: SimpleNamespace) -> None:
    good = b'{"id": 1, "name": "a"}'
    values = Json(models.Flat).deserialize_many([good, b"{", None, b'{"id": -1, "name": ""}', good], CTX)
    assert [getattr(value, "kind", value) for value in values] == [
        models.Flat(1, "a"),
        "malformed",
        None,
        "invalid",
        models.Flat(1, "a"),
    ]


def test_json_null_is_a_value_only_where_the_type_allows_it(models: SimpleNamespace) -> None:
    assert Json(models.Flat | None).deserialize(b"null", CTX) is None
    refused = Json(models.Flat).deserialize(b"null", CTX)
    assert isinstance(refused, Malformed)
    assert refused.kind == "invalid"


def test_a_nested_dataclass_comes_back_equal(models: SimpleNamespace, order: Any) -> None:
    serde = Json(models.Order)
    assert serde.deserialize(serde.serialize(order, CTX), CTX) == order


def test_nan_in_a_typed_value_is_refused_because_json_would_say_null() -> None:
    @dataclasses.dataclass
    class Reading:
        celsius: float

    with pytest.raises(SerializationError, match=r"orders value: .*decoded again as Reading: .*`\$.celsius`"):
        Json(Reading).serialize(Reading(math.nan), CTX)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nan_is_refused_where_null_could_be_read_instead(number: float) -> None:
    @dataclasses.dataclass
    class Reading:
        place: str
        celsius: float | None

    refused = r"orders value: JSON has no NaN and no infinity - at `\$%s`"
    with pytest.raises(SerializationError, match=refused % r"\.celsius"):
        Json(Reading).serialize(Reading("roof", number), CTX)
    with pytest.raises(SerializationError, match=refused % r"\.readings\[1\]\.celsius"):
        Json().serialize({"readings": (None, {"celsius": number})}, CTX)


@pytest.mark.parametrize("field", [float, float | None])
def test_nan_in_a_pydantic_model_is_refused_unless_its_config_writes_it(field: Any) -> None:
    model = pydantic.create_model("Reading", celsius=field)
    with pytest.raises(SerializationError, match=r"orders value: (.|\n)*celsius"):
        Json(model).serialize(model(celsius=math.nan), CTX)
    config = pydantic.ConfigDict(ser_json_inf_nan="strings")
    spelled = pydantic.create_model("Spelled", __config__=config, celsius=field, note=(str | None, None))
    assert Json(spelled).serialize(spelled(celsius=math.nan), CTX) == b'{"celsius":"NaN","note":null}'


def test_nan_beside_what_a_hook_encodes_is_refused() -> None:
    class Array:
        def __eq__(self, other: object) -> bool:
            raise ValueError("the truth of an array is ambiguous")

    serde = Json(enc_hook=lambda _array: [1, 2])
    assert serde.serialize({"array": Array(), "none": None}, CTX) == b'{"array":[1,2],"none":null}'
    with pytest.raises(SerializationError, match=r"no infinity - at `\$\.celsius`"):
        serde.serialize({"array": Array(), "celsius": math.nan}, CTX)


def test_null_that_was_none_is_sent() -> None:
    value = {"a": None, "b": ("null", 1.5), "c": [None]}
    assert Json().serialize(value, CTX) == b'{"a":null,"b":["null",1.5],"c":[null]}'


def test_a_field_of_the_wrong_type_is_refused_before_it_is_sent(models: SimpleNamespace) -> None:
    with pytest.raises(SerializationError, match=r"Expected `int`, got `str` - at `\$.id`"):
        Json(models.FlatStruct).serialize(models.FlatStruct(id="1", name="a"), CTX)


def test_a_pydantic_field_changed_to_a_wrong_type_is_refused_before_it_is_sent(models: SimpleNamespace) -> None:
    value = models.FlatModel(id=1, name="a")
    value.id = "one"
    with pytest.raises(SerializationError, match=r"orders value: (.|\n)*'id'"):
        Json(models.FlatModel).serialize(value, CTX)


def test_a_value_json_cannot_hold_is_refused_with_its_place() -> None:
    with pytest.raises(SerializationError, match=r"orders value: .*object is unsupported - at `\$.items\[1\].x`"):
        Json().serialize({"ok": 1, "items": [1, {"x": object()}]}, CTX)


def test_a_value_that_is_nested_beyond_the_interpreters_stack_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(SerializationError, match="list is nested too deeply for JSON"):
        Json().serialize(nested, CTX)


def test_check_off_sends_what_the_type_would_not_read_back() -> None:
    @dataclasses.dataclass
    class Reading:
        celsius: float

    assert Json(Reading, check=False).serialize(Reading(math.nan), CTX) == b'{"celsius":null}'


def test_hooks_teach_a_type_json_does_not_know() -> None:
    serde: Json[complex] = Json(
        complex, enc_hook=lambda value: [value.real, value.imag], dec_hook=lambda _type, plain: complex(*plain)
    )
    assert serde.deserialize(serde.serialize(1 + 2j, CTX), CTX) == 1 + 2j


def test_a_type_that_no_decoder_can_be_made_for_is_a_config_error(models: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match="Json"):
        Json(models.Flat | models.Address)


@dataclasses.dataclass
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass
class Basket:
    id: int
    note: str = "none"
    lines: list[Line] = dataclasses.field(default_factory=list)
    first: Line | None = None


def test_a_record_that_is_read_and_sent_on_keeps_its_defaulted_fields() -> None:
    serde: Json[Basket] = Json(Basket)
    context = SerdeContext("baskets", "value")
    read = serde.deserialize(b'{"id":1,"lines":[{"item":"tea"}],"first":{"item":"milk"}}', context)
    assert isinstance(read, Basket)
    sent = serde.serialize(read, context)
    assert sent is not None
    assert json.loads(sent) == {
        "id": 1,
        "note": "none",
        "lines": [{"item": "tea", "count": 1}],
        "first": {"item": "milk", "count": 1},
    }
