"""A handler's annotations: held against its serde where there is one, and what chooses it where there is none."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NewType, Protocol, TypedDict, TypeVar

import msgspec
import pytest

from ottla import App, Avro, BindingError, Bytes, Context, Int64, Json, Malformed, Record, Serde, Str
from ottla.app.app import declarations_of
from ottla.app.handler.binding import bind
from ottla.serdes import SerdeContext, as_serde
from ottla.testing import consumer_for

CTX = SerdeContext("orders", "value")
OrderId = NewType("OrderId", int)
V = TypeVar("V")


@dataclass
class Order:
    id: int


@dataclass
class Refund(Order):
    reason: str = ""


class Line(TypedDict):
    sku: str


class Priced(Protocol):
    id: int


class Colour(enum.Enum):
    RED = "red"


class Plain:
    """No model: nothing says which fields it has."""


class Opaque(Serde[Any]):
    """A serde that does not say what it gives."""

    def serialize(self, value: Any, ctx: SerdeContext) -> bytes | None:
        return None

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> Any:
        return data


def handler_of(annotation: Any, name: str = "order") -> Callable[..., None]:
    """A handler whose one parameter has this annotation."""
    namespace: dict[str, Any] = {}
    exec(f"def on_order({name}): ...", namespace)
    function: Callable[..., None] = namespace["on_order"]
    function.__annotations__ = {name: annotation}
    return function


def serde_for(annotation: Any, *, name: str = "order", **options: Any) -> Serde[Any]:
    app = App("g")
    app.handler("orders", **options)(handler_of(annotation, name))
    return declarations_of(app).routes[0].value_serde


class TestHeldAgainstTheSerde:
    @pytest.mark.parametrize(
        ("annotation", "serde"),
        [
            (Order, Json(Order)),
            (Order | None, Json(Order)),
            (Order | Malformed, Json(Order)),
            (Annotated[Order, "of today"], Json(Order)),
            (Order, Json(Order | None)),
            (Order, Json(Refund)),
            (Order | Refund, Json(Order)),
            (Any, Json(Order)),
            (object, Json(Order)),
            (V, Json(Order)),
            (Priced, Json(Order)),
            ("NotImported", Json(Order)),
            (Record[Order], Json(Order)),
            (Record[Order | Malformed], Json(Order)),
            (Record, Json(Order)),
            (dict, Json(Line)),
            (dict[str, Any], Json(Line)),
            (Line, Json(Line)),
            (list[Order], Json(list[Order])),
            (Sequence[Order], Json(list[Order])),
            (Mapping, Json(dict[str, int])),
            (float, Int64()),
            (OrderId, Int64()),
            (str, Str),
            (str, str),
            (bytes, Bytes()),
            (memoryview, Bytes()),
            (dict[str, Any], Avro('{"type": "record", "name": "R", "fields": []}')),
            (Order, Avro(Order)),
            (Plain, Opaque()),
        ],
    )
    def test_what_the_serde_gives_is_taken(self, annotation: Any, serde: Any) -> None:
        assert serde_for(annotation, value=serde).value_type == as_serde(serde).value_type

    @pytest.mark.parametrize(
        ("annotation", "serde", "named"),
        [
            (int, Json(Order), r"Json\(Order\) gives Order, but the annotation says int"),
            (Refund, Json(Order), "gives Order, but the annotation says Refund"),
            (Order, Json(Order | int), "but the annotation says Order"),
            (Record[int], Json(Order), "gives Order, but the annotation says int"),
            (str | None, Avro(Order), "gives Order"),
            (list[int], Json(list[Order]), "gives list"),
            (Order, str, "gives str, but the annotation says Order"),
            (str, Int64(), "gives int, but the annotation says str"),
            (str, Bytes, "gives bytes, but the annotation says str"),
            (list[Order], Json(Order), "gives Order, but the annotation says list"),
        ],
    )
    def test_another_type_is_refused_where_it_is_declared(self, annotation: Any, serde: Any, named: str) -> None:
        with pytest.raises(BindingError, match=f"on_order: value=.*{named}"):
            serde_for(annotation, value=serde)

    @pytest.mark.parametrize("annotation", [list[Order], Sequence[Order], list[Order | Malformed], list, Any])
    def test_a_batch_is_a_list_of_what_the_serde_gives(self, annotation: Any) -> None:
        serde_for(annotation, value=Json(Order), batch=True)

    def test_a_batch_of_records_is_one_too(self) -> None:
        serde_for(list[Record[Order]], value=Json(Order), batch=True)

        with pytest.raises(BindingError, match="gives Order, but the annotation says int"):
            serde_for(list[Record[int]], value=Json(Order), batch=True)

    @pytest.mark.parametrize(
        ("annotation", "named"), [(Order, "found Order, wanted a list"), (list[int], "but the annotation says int")]
    )
    def test_anything_else_is_no_batch(self, annotation: Any, named: str) -> None:
        with pytest.raises(BindingError, match=named):
            serde_for(annotation, value=Json(Order), batch=True)

    def test_keys_are_held_against_theirs(self) -> None:
        def on_order(order: Order, key: int) -> None: ...

        App("g").handler("orders", value=Json(Order), key=Int64())(on_order)
        with pytest.raises(BindingError, match=r"on_order: key=.*gives str, but the annotation says int"):
            App("g").handler("orders", value=Json(Order), key=str)(on_order)


class TestChosenByTheAnnotation:
    @pytest.mark.parametrize(
        ("annotation", "wanted"),
        [
            (Any, "Bytes"),
            (bytes, "Bytes"),
            (bytes | None, "Bytes"),
            (Malformed, "Bytes"),
            (str, "Str"),
            (str | None, "Str"),
            (int, "Int64"),
            (Record[int], "Int64"),
            (bool, "Json"),
            (Order, "Json"),
            (Order | Malformed, "Json"),
            (list[Order], "Json"),
            (dict[str, Any], "Json"),
            (Colour, "Json"),
        ],
    )
    def test_without_a_serde_the_annotation_says_it(self, annotation: Any, wanted: str) -> None:
        assert type(serde_for(annotation)).__name__ == wanted

    def test_an_order_is_read_from_json(self) -> None:
        handled: list[Order] = []

        def on_order(order: Order, key: str, context: Context) -> None:
            handled.append(order)
            assert key == "42"

        consumer = consumer_for(on_order, dead_letter_topic="dead")

        assert consumer.deliver(b'{"id": 1}', key=b"42").outcome == "done"
        assert consumer.deliver(Order(2), key="42").outcome == "done"
        letter = consumer.deliver(b'{"id": "one"}').dead_letter
        assert letter is not None
        assert letter.kind == "invalid"
        assert handled == [Order(1), Order(2)]

    @pytest.mark.parametrize("given", [Json, Json()])
    def test_json_without_a_type_gets_the_annotations(self, given: Any) -> None:
        assert serde_for(Order, value=given).value_type is Order
        assert serde_for(Any, value=given).value_type is Any

    def test_what_json_was_told_beside_its_type_stays(self) -> None:
        made = serde_for(Order, value=Json(check=False, enc_hook=repr, dec_hook=lambda cls, data: cls()))

        assert isinstance(made, Json)
        assert made.has_decoding_hook
        assert serde_for(Plain, value=Json(dec_hook=lambda cls, data: cls())).deserialize(b"{}", CTX).__class__ is Plain

    @pytest.mark.parametrize("options", [{}, {"value": Json()}])
    @pytest.mark.parametrize("annotation", [Plain, Plain | None, list[Plain]])
    def test_a_class_that_nothing_describes_needs_a_serde(self, annotation: Any, options: dict[str, Any]) -> None:
        with pytest.raises(BindingError, match=r"on_order: .*Plain is no dataclass"):
            serde_for(annotation, **options)

    def test_the_key_is_chosen_too(self) -> None:
        app = App("g")
        app.handler("orders")(handler_of(str, "key"))

        assert isinstance(declarations_of(app).routes[0].key_serde, Str)
        assert isinstance(declarations_of(app).routes[0].value_serde, Bytes)

    def test_structs_and_typed_dicts_are_models(self) -> None:
        class Event(msgspec.Struct):
            at: int

        assert serde_for(Event).deserialize(b'{"at": 1}', CTX) == Event(1)
        assert serde_for(Line).deserialize(b'{"sku": "tea"}', CTX) == {"sku": "tea"}


class TestAnnotationsThatCannotBeEvaluated:
    """`if TYPE_CHECKING: from shop import NotImported`, a class of an enclosing function, or a misspelt name."""

    @pytest.mark.parametrize(
        "annotation",
        ["NotImported", "shop.Order", "list[NotImported]", "NotImported | Malformed", "Record[NotImported]", "Order["],
    )
    @pytest.mark.parametrize(
        "given", [{}, {"value": Json()}, {"value": str}, {"value": Avro({"type": "map", "values": "int"})}]
    )
    def test_one_of_the_value_is_refused_by_name(self, annotation: str, given: dict[str, Any]) -> None:
        with pytest.raises(
            BindingError, match=f"the annotation {re.escape(repr(annotation))}, which cannot be evaluated"
        ):
            serde_for(annotation, **given)

    @pytest.mark.parametrize("annotation", ["list[NotImported]", "list[Record[NotImported]]", "NotImported"])
    def test_one_of_the_values_of_a_batch_is_refused_by_name(self, annotation: str) -> None:
        with pytest.raises(BindingError, match="which cannot be evaluated"):
            serde_for(annotation, batch=True)

    def test_one_of_the_key_is_refused_by_name(self) -> None:
        with pytest.raises(BindingError, match="no key= is given: found the annotation 'OrderKey'"):
            App("g").handler("orders", value=Json(Order))(handler_of("OrderKey", "key"))

    @pytest.mark.parametrize("annotation", ["Batch", "NotImported", "list[pl.DataFrame]"])
    def test_one_of_a_batch_of_columns_is_refused_by_name(self, annotation: str) -> None:
        with pytest.raises(BindingError, match="which cannot be evaluated"):
            serde_for(annotation, columns=True)

    @pytest.mark.parametrize(
        ("annotation", "form"),
        [
            ("pl.DataFrame", "polars"),
            ("pd.DataFrame", "pandas"),
            ("pa.Table", "table"),
            ("pyarrow.RecordBatch", "arrow"),
        ],
    )
    def test_the_known_kinds_of_batches_of_columns_are_known_by_name(self, annotation: str, form: str) -> None:
        frames = pytest.importorskip("ottla.columnar.serving.frames")
        binding = bind(handler_of(annotation), is_batch=True, is_columnar=True)

        assert frames.form_of(binding.frame_hint) == form

    @pytest.mark.parametrize("annotation", ["Record", "ottla.Record", "list[Record]"])
    def test_a_record_is_known_by_name(self, annotation: str) -> None:
        function = handler_of(annotation)
        function.__globals__.pop("Record", None)

        assert type(serde_for(annotation, batch=annotation.startswith("list"))) is Bytes

    def test_one_that_says_nothing_of_the_record_is_passed_over(self) -> None:
        def on_order(order: Order, headers: Missing, ctx: Context, *more: Missing) -> Missing: ...  # type: ignore[name-defined]  # noqa: F821

        App("g").handler("orders")(on_order)

    def test_the_others_still_count(self) -> None:
        def on_order(order: Order, headers: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        app = App("g")
        app.handler("orders")(on_order)

        assert declarations_of(app).routes[0].value_serde.value_type is Order
