"""`@fact` behaves as the frozen dataclass that it replaces."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from functools import cached_property
from typing import ClassVar

import pytest

from ottla_wire.facts import fact, positional_fact


@fact
class Point:
    """Two numbers and a list of names."""

    x: int
    y: int = 2
    names: list[str] = dataclasses.field(default_factory=list)

    @property
    def total(self) -> int:
        return self.x + self.y


@fact
class One:
    only: int


@fact
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"number: found {self.number}, wanted 1 or more")


@fact
class Login:
    user: str
    password: str = dataclasses.field(repr=False)
    seen_at: int = dataclasses.field(default=0, compare=False)
    worked_out: ClassVar[int] = 0

    @cached_property
    def initial(self) -> str:
        Login.worked_out += 1
        return self.user[0]


@fact
class Empty:
    """Nothing in it."""


def test_it_is_made_by_keyword_with_defaults() -> None:
    point = Point(x=1)
    assert (point.x, point.y, point.names, point.total) == (1, 2, [], 3)
    assert Point(x=1).names is not point.names
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point(x=1, z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[misc]


def test_what_it_checks_of_itself_is_checked_for_the_first_one_and_for_every_other() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="found 0"):
            Positive(number=0)
        assert Positive(number=1).number == 1
        with pytest.raises(ValueError, match="found 0"):
            dataclasses.replace(Positive(number=2), number=0)


def test_it_cannot_be_changed() -> None:
    point = Point(x=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    with pytest.raises(AttributeError):
        point.other = 2  # type: ignore[attr-defined]


def test_it_is_equal_and_hashed_by_value_within_its_class() -> None:
    assert Point(x=1) == Point(x=1)
    assert Point(x=1) != Point(x=2)
    assert One(only=1) == One(only=1)
    assert One(only=1) != 1
    assert hash(One(only=1)) == hash(One(only=1))
    assert Empty() == Empty()
    assert len({One(only=1), One(only=1), One(only=2)}) == 2


def test_the_standard_librarys_helpers_work_on_it() -> None:
    point = Point(x=1, names=["a"])
    assert dataclasses.replace(point, y=5) == Point(x=1, y=5, names=["a"])
    assert [field.name for field in dataclasses.fields(point)] == ["x", "y", "names"]
    assert dataclasses.asdict(point) == {"x": 1, "y": 2, "names": ["a"]}
    assert copy.copy(point) == point


def test_it_shows_its_fields() -> None:
    assert repr(Point(x=1)) == "Point(x=1, y=2, names=[])"
    assert repr(Empty()) == "Empty()"


def test_it_keeps_its_documentation_and_name() -> None:
    assert Point.__doc__ == "Two numbers and a list of names."
    assert Point.__module__ == __name__


def test_it_is_pickled() -> None:
    login = Login(user="ann", password="secret", seen_at=1)
    assert login.initial == "a"
    again = pickle.loads(pickle.dumps(login))
    assert (again, again.password, again.seen_at, again.initial) == (login, "secret", 1, "a")


def test_a_field_that_is_not_shown_or_not_compared_is_not() -> None:
    assert repr(Login(user="ann", password="secret")) == "Login(user='ann', seen_at=0)"
    assert Login(user="ann", password="secret", seen_at=1) == Login(user="ann", password="secret", seen_at=2)
    assert hash(Login(user="ann", password="secret", seen_at=1)) == hash(Login(user="ann", password="secret"))
    assert Login(user="ann", password="secret") != Login(user="ann", password="other")


def test_a_cached_property_is_worked_out_once() -> None:
    login = Login(user="ann", password="secret")
    before = Login.worked_out
    assert (login.initial, login.initial) == ("a", "a")
    assert Login.worked_out == before + 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        login.user = "bob"  # type: ignore[misc]


def test_its_signature_is_known_before_the_first_one_is_made() -> None:
    @fact
    class Fresh:
        x: int
        names: list[str] = dataclasses.field(default_factory=list)
        y: int = 2

    before = str(inspect.signature(Fresh))
    Fresh(x=1)
    assert before == str(inspect.signature(Fresh))
    assert list(inspect.signature(Fresh).parameters) == ["x", "names", "y"]
    assert inspect.signature(Fresh).parameters["y"].default == 2


@fact
class Wide:
    """So many fields that they are written another way."""

    a: int
    b: int = 2
    c: tuple[int, ...] = ()
    d: list[int] = dataclasses.field(default_factory=list)
    e: int | None = None
    f: int | None = None
    g: int | None = None
    h: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.a < 0:
            raise ValueError(f"a: found {self.a}, wanted 0 or more")


def test_the_thousandth_of_its_class_is_as_the_first() -> None:
    """Its `__init__` was compiled meanwhile."""

    @fact
    class Counted:
        x: int
        y: int = 2
        names: list[str] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError(f"x: found {self.x}, wanted 0 or more")

    for x in range(1_000):
        counted = Counted(x=x)
        assert (counted.x, counted.y, counted.names) == (x, 2, [])
        assert counted.names is not Counted(x=x, names=["a"]).names
        with pytest.raises(ValueError, match="found -1"):
            Counted(x=-1)
        with pytest.raises(TypeError, match="'z'"):
            Counted(x=x, z=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="'x'"):
            Counted()  # type: ignore[call-arg]


@pytest.mark.parametrize("a", [1, 2])
def test_one_of_many_fields_is_a_fact_like_any_other(a: int) -> None:
    """The first of its class, and those after it."""
    wide = Wide(a=a, c=(3,), h="hidden")
    assert type(wide) is Wide
    assert wide == Wide(a=a, c=(3,), h="hidden") != Wide(a=a)
    assert (wide.b, wide.d, wide.e, wide.h) == (2, [], None, "hidden")
    assert wide.d is not Wide(a=a).d
    with pytest.raises(dataclasses.FrozenInstanceError):
        wide.a = 5  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del wide.a
    assert not hasattr(wide, "__dict__")
    assert pickle.loads(pickle.dumps(wide)) == copy.copy(wide) == wide
    assert dataclasses.replace(wide, b=9).b == 9
    assert repr(Wide(a=1)) == "Wide(a=1, b=2, c=(), d=[], e=None, f=None, g=None)"
    with pytest.raises(ValueError, match="found -1"):
        Wide(a=-1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Wide(a=1, z=2)  # type: ignore[call-arg]


def test_a_positional_fact_takes_its_fields_in_their_order_or_by_name() -> None:
    @positional_fact
    class Place:
        x: int
        y: int = 2
        names: list[str] = dataclasses.field(default_factory=list)

    for _ in range(1_000):  # its `__init__` is compiled meanwhile
        assert Place(1) == Place(x=1) == Place(1, y=2) == Place(1, 2, [])
        assert Place(1, 3, ["a"]) == Place(1, names=["a"], y=3) != Place(1)
        with pytest.raises(TypeError, match="'x'"):
            Place()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="multiple values for argument 'x'"):
            Place(1, x=1)  # type: ignore[misc]
        with pytest.raises(TypeError, match="positional arguments"):
            Place(1, 2, [], 4)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="'z'"):
            Place(1, z=1)  # type: ignore[call-arg]


def test_a_positional_fact_is_otherwise_a_fact() -> None:
    @positional_fact
    class Place:
        x: int
        y: int = 2

    before = inspect.signature(Place)
    place = Place(1)
    assert str(before) == str(inspect.signature(Place)) == "(x, y=2)"
    match place:
        case Place(x, y):
            assert (x, y) == (1, 2)
        case _:
            raise AssertionError(place)
    assert {field.name: field.kw_only for field in dataclasses.fields(place)} == {"x": False, "y": False}
    assert dataclasses.replace(place, y=3) == Place(1, 3)
    assert (hash(Place(1)), copy.copy(place)) == (hash(place), place)
    with pytest.raises(dataclasses.FrozenInstanceError):
        place.x = 5  # type: ignore[misc]
