"""A `NamedTuple` of ottla_wire behaves as one of `typing`."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing

import pytest

from ottla_wire.named_tuples import NamedTuple


class Place(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int | None = None

    @property
    def is_known(self) -> bool:
        return self.offset >= 0


class Quiet(NamedTuple):
    password: str

    def __repr__(self) -> str:
        return "Quiet(password=***)"


class Plain(typing.NamedTuple):
    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int | None = None


def test_it_is_a_tuple_with_names_defaults_and_methods() -> None:
    place = Place("orders", partition=3)
    assert place == ("orders", 3, -1, None)
    assert isinstance(place, tuple)
    assert (place.topic, place.partition, place.offset, place.is_known) == ("orders", 3, -1, False)
    assert Place("orders", 3, 5).is_known
    assert len({Place("orders", 3), Place("orders", 3), Place("orders", 4)}) == 2
    assert Place("a", 1) < Place("a", 2)


def test_the_first_of_its_class_is_refused_as_every_other() -> None:
    class Fresh(NamedTuple):
        x: int
        y: int = 2

    for _ in range(2):
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            Fresh()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
            Fresh(1, z=2)  # type: ignore[call-arg]
        assert Fresh(1) == (1, 2)


def test_it_cannot_be_changed_and_has_no_room_for_more() -> None:
    place = Place("orders", 3)
    with pytest.raises(AttributeError):
        place.offset = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        place.other = 5  # type: ignore[attr-defined]


def test_what_named_tuples_offer_is_there() -> None:
    place, plain = Place("orders", 3), Plain("orders", 3)
    for name in ("_fields", "_field_defaults", "__match_args__"):
        assert getattr(Place, name) == getattr(Plain, name)
    assert place._asdict() == plain._asdict()
    assert place._replace(offset=5) == plain._replace(offset=5)
    assert type(place._replace(offset=5)) is Place
    with pytest.raises(ValueError, match="other"):
        place._replace(other=5)
    assert Place._make(("orders", 3, 5, 1)) == Place("orders", 3, 5, 1)
    with pytest.raises(TypeError, match="expected 4 values, got 2"):
        Place._make(("orders", 3))
    match place:
        case Place(topic, partition=3):
            assert topic == "orders"
        case _:
            pytest.fail("a class pattern finds the fields")


def test_it_shows_its_fields_unless_its_class_says_how() -> None:
    assert repr(Place("orders", 3)) == "Place(topic='orders', partition=3, offset=-1, leader_epoch=None)"
    assert repr(Quiet("secret")) == "Quiet(password=***)"


def test_it_is_copied_and_pickled() -> None:
    place = Place("orders", 3, 5)
    for again in (pickle.loads(pickle.dumps(place)), copy.copy(place), copy.deepcopy(place)):
        assert again == place
        assert type(again) is Place


def test_its_name_documentation_types_and_signature_are_known() -> None:
    assert (Place.__name__, Place.__module__, Place.__doc__) == ("Place", __name__, "Where a record is.")
    assert typing.get_type_hints(Place) == typing.get_type_hints(Plain)

    class Fresh(NamedTuple):
        x: int
        y: int = 2

    before = str(inspect.signature(Fresh))
    Fresh(1)
    assert before == str(inspect.signature(Fresh)) == "(x, y=2)"


def test_a_class_that_it_cannot_be_is_refused() -> None:
    with pytest.raises(TypeError, match="follows one that has one"):

        class Gap(NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]

    with pytest.raises(TypeError, match="no other base"):

        class Both(NamedTuple, Exception):  # type: ignore[misc]
            x: int
