"""`--where`: a small expression over a record, parsed here. It is never run as Python.

    value.total > 100 and headers.source == "web"
    key in ["a", "b"] or not ("error" in value)
    value.items[0].sku == null
    partition == 3 and timestamp >= "2026-11-22T10:00"

Names: `key value headers partition offset timestamp topic`. A path goes into JSON by `.name`, `["name"]` and `[0]`;
what is not there is null. Operators: `== != < <= > >= in`, `not in`, `and or not`, parentheses. `in` looks for a text
in a text, for an item in a list, for a name in an object. What is of different types is not equal, and neither less nor
greater. `headers.name` is the last value under that name as text. `timestamp` is milliseconds, and compares with times
written as text. Expressions have at most 4,000 characters and 40 levels.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, Protocol, TypeAlias

from ottla.amounts import parse_time_ms
from ottla.browse.where_tokens import BadExpression, WhereToken, tokens

MOST_LEVELS: Final = 40


class Scope(Protocol):
    """A record as an expression sees it. What costs something is asked for when the expression comes to it."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    def headers(self) -> Mapping[str, str | None]:
        """Return the last value of each name as text."""
        ...

    def text(self, part: str) -> Any:
        """Return `key` or `value` for a comparison with a text: decoded if a serde was given, else its text."""
        ...

    def tree(self, part: str) -> Any:
        """Return `key` or `value` decoded, as JSON if no serde was given; None if it cannot be decoded."""
        ...


Value: TypeAlias = Callable[[Scope], Any]

_PARTS: Final = ("key", "value")
_PLAIN: Final[Mapping[str, Value]] = {
    "partition": operator.attrgetter("partition"),
    "offset": operator.attrgetter("offset"),
    "timestamp": operator.attrgetter("timestamp"),
    "topic": operator.attrgetter("topic"),
    "headers": operator.methodcaller("headers"),
}
NAMES: Final = (*_PARTS, *_PLAIN)
_CONSTANTS: Final = {"null": None, "true": True, "false": False}
_ORDER: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_NUMBERS: Final = (int, float, Decimal)
_WORDS: Final = frozenset({"and", "or", "not", "in"})


def parse_where(expression: str, *, now_ms: int = 0) -> Callable[[Scope], bool]:
    """Return the expression as a function of a record. Raises `BadExpression` naming the character, never anything
    else.

    `now_ms` is what times ago (`timestamp > "-2h"`) are counted from.
    """
    return _WhereParser(expression, now_ms).parse()


class _Operand:
    """One side of a comparison, before it is known what it is compared with."""

    __slots__ = ("column", "constant", "is_constant", "name", "value")

    def __init__(self, value: Value, *, name: str = "", constant: Any = None, is_constant: bool = False) -> None:
        self.column = 0
        self.value = value
        self.name = name  # of a bare `key`, `value` or `timestamp`
        self.constant = constant
        self.is_constant = is_constant


class _WhereParser:
    def __init__(self, expression: str, now_ms: int) -> None:
        self._expression = expression
        self._now_ms = now_ms
        self._tokens = list(tokens(expression))
        self._at = 0
        self._level = 0

    def parse(self) -> Callable[[Scope], bool]:
        found = self._any_of()
        if self._token.kind != "end":
            raise self._wanted("and, or, or the end")
        return found

    @property
    def _token(self) -> WhereToken:
        return self._tokens[self._at]

    def _takes(self, *texts: str) -> str | None:
        token = self._token
        if token.kind in ("sign", "name") and token.text in texts:
            self._at += 1
            return token.text
        return None

    def _wanted(self, what: str, column: int | None = None) -> BadExpression:
        return BadExpression(self._expression, self._token.column if column is None else column, what)

    def _any_of(self) -> Callable[[Scope], bool]:
        terms = [self._all_of()]
        while self._takes("or"):
            terms.append(self._all_of())
        return terms[0] if len(terms) == 1 else lambda scope: any(term(scope) for term in terms)

    def _all_of(self) -> Callable[[Scope], bool]:
        terms = [self._not()]
        while self._takes("and"):
            terms.append(self._not())
        return terms[0] if len(terms) == 1 else lambda scope: all(term(scope) for term in terms)

    def _not(self) -> Callable[[Scope], bool]:
        is_negated = False
        while self._takes("not"):
            is_negated = not is_negated
        term = self._term()
        return (lambda scope: not term(scope)) if is_negated else term

    def _term(self) -> Callable[[Scope], bool]:
        column = self._token.column
        if self._takes("("):
            self._deeper(column)
            inner = self._any_of()
            self._level -= 1
            if not self._takes(")"):
                raise self._wanted("and, or, or ')'")
            return inner
        return self._comparison()

    def _comparison(self) -> Callable[[Scope], bool]:
        left = self._placed_operand()
        sign = self._takes("==", "!=", "<", "<=", ">", ">=", "in", "not")
        if sign == "not" and not self._takes("in"):
            raise self._wanted("in, behind not")
        if sign is None:
            truth = left.value
            return lambda scope: _is_true(truth(scope))
        right = self._placed_operand()
        a, b = self._matched(left, right), self._matched(right, left)
        if sign in ("in", "not"):
            is_wanted_in = sign == "in"
            return lambda scope: _contains(b(scope), a(scope)) is is_wanted_in
        if sign == "==":
            return lambda scope: _same(a(scope), b(scope))
        if sign == "!=":
            return lambda scope: not _same(a(scope), b(scope))
        compare = _ORDER[sign]
        return lambda scope: _ordered(compare, a(scope), b(scope))

    def _matched(self, side: _Operand, other: _Operand) -> Value:
        """Convert one side of a comparison to a type that the other side can be compared with."""
        if side.name in _PARTS and other.is_constant and not isinstance(other.constant, str | list):
            if other.constant is None:
                return side.value
            part = side.name
            return lambda scope: scope.tree(part)  # compared with a number: a text that is one counts as one
        if other.name == "timestamp" and side.is_constant and isinstance(side.constant, str):
            at = self._time(side.constant, side.column)
            return lambda _scope: at
        return side.value

    def _time(self, text: str, column: int) -> int:
        found = parse_time_ms(text, now_ms=self._now_ms)
        if found is None:
            raise self._wanted("a time as 2026-11-22T10:00 or -2h beside timestamp", column)
        return found

    def _placed_operand(self) -> _Operand:
        column = self._token.column
        operand = self._operand()
        operand.column = column
        return operand

    def _operand(self) -> _Operand:
        token = self._token
        if token.kind in ("number", "text"):
            self._at += 1
            return _constant(token.value)
        if token.kind == "name" and token.text in _CONSTANTS:
            self._at += 1
            return _constant(_CONSTANTS[token.text])
        if self._takes("["):
            return self._list(token.column)
        if token.kind == "name" and token.text in NAMES:
            self._at += 1
            return self._path(token.text)
        if token.kind == "name" and token.text not in _WORDS:
            raise self._wanted(f"one of {', '.join(NAMES)}, or a text in quotes")
        raise self._wanted("a value")

    def _list(self, column: int) -> _Operand:
        items: list[Any] = []
        self._deeper(column)
        while not self._takes("]"):
            if items and not self._takes(","):
                raise self._wanted("',' or ']'")
            item = self._operand()
            if not item.is_constant:
                raise self._wanted("constants in a list", column)
            items.append(item.constant)
        self._level -= 1
        return _constant(items)

    def _path(self, name: str) -> _Operand:
        steps: list[str | int] = []
        while (sign := self._takes(".", "[")) is not None:
            token = self._token
            if sign == "." and token.kind != "name":
                raise self._wanted("a name behind '.'")
            if sign == "[" and not (token.kind == "text" or (token.kind == "number" and isinstance(token.value, int))):
                raise self._wanted("a whole number or a text in quotes behind '['")
            self._at += 1
            steps.append(token.value)
            if sign == "[" and not self._takes("]"):
                raise self._wanted("']'")
        if name in _PARTS:
            if not steps:
                return _Operand(lambda scope: scope.text(name), name=name)
            return _Operand(lambda scope: _step(scope.tree(name), steps))
        plain = _PLAIN[name]
        if steps:
            return _Operand(lambda scope: _step(plain(scope), steps))
        return _Operand(plain, name=name)

    def _deeper(self, column: int) -> None:
        self._level += 1
        if self._level > MOST_LEVELS:
            raise self._wanted(f"at most {MOST_LEVELS} levels of parentheses and lists", column)


def _constant(value: Any) -> _Operand:
    return _Operand(lambda _scope: value, constant=value, is_constant=True)


def _step(tree: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(tree, dict) and isinstance(step, str):
            tree = tree.get(step)
        elif isinstance(tree, list) and isinstance(step, int) and -len(tree) <= step < len(tree):
            tree = tree[step]
        else:
            return None
    return tree


def _is_true(value: Any) -> bool:
    return value is not None and value is not False


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    try:
        return bool(a == b)
    except RecursionError:  # two trees from records, nested as deep as JSON goes
        return False


def _ordered(compare: Callable[[Any, Any], Any], a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    are_numbers = isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS)
    return bool(compare(a, b)) if are_numbers or (isinstance(a, str) and isinstance(b, str)) else False


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    if isinstance(whole, list):
        return any(_same(item, part) for item in whole)
    return isinstance(whole, dict) and isinstance(part, str) and part in whole
