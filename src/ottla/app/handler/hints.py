"""What a function's annotations say at run time, each by itself.

With `from __future__ import annotations` they are text, and text can name what does not exist when the program runs: a
class imported under `if TYPE_CHECKING:`, one of an enclosing function, a misspelt one. `typing.get_type_hints` refuses
all of them for the sake of one; whoever binds parameters has to know which.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_DOTTED: Final = r"(?:[A-Za-z_]\w*\.)*"
_CONTEXT: Final = re.compile(rf"{_DOTTED}Context")
_RECORD: Final = re.compile(rf"{_DOTTED}Record(\[.*\])?", re.DOTALL)
_RECORDS: Final = re.compile(rf"{_DOTTED}(?:list|List|Sequence)\[{_DOTTED}Record(\[.*\])?\]", re.DOTALL)
_FRAME: Final = re.compile(rf"{_DOTTED}(?:DataFrame|RecordBatch|Table)")


@dataclass(frozen=True, slots=True)
class Unresolved:
    """An annotation that cannot be evaluated. Of a few its text says enough."""

    text: str
    why: str

    @property
    def is_context(self) -> bool:
        return _CONTEXT.fullmatch(self.text) is not None

    def is_record(self, *, is_batch: bool) -> bool:
        """Return whether it is `Record` or `Record[...]`; of a batch a list of those."""
        return (_RECORDS if is_batch else _RECORD).fullmatch(self.text) is not None

    def says_of_value(self, *, is_batch: bool) -> bool:
        """Return whether it says more than `Record`: what the value is."""
        found = (_RECORDS if is_batch else _RECORD).fullmatch(self.text)
        return found is None or found[1] is not None

    @property
    def is_frame(self) -> bool:
        """Return whether it may be what a handler of columns can get."""
        return _FRAME.fullmatch(self.text) is not None

    def __str__(self) -> str:
        return (
            f"the annotation {self.text!r}, which cannot be evaluated ({self.why}); wanted a type that the handler's "
            "module has at run time: import it outside of `if TYPE_CHECKING:`, and define it outside of functions"
        )


def hints_of(function: Callable[..., Any], *, with_extras: bool = False) -> dict[str, Any]:
    """Return the annotations of a function, a partial or an object that can be called; `Unresolved` for what is not
    there. `with_extras`: with what `Annotated` adds."""
    target: Any = function
    if not inspect.isroutine(function) and not isinstance(function, type):
        target = getattr(function, "func", None) or type(function).__call__  # functools.partial, or an object
    try:
        return typing.get_type_hints(target, include_extras=with_extras)
    except Exception:
        annotations = getattr(target, "__annotations__", None) or {}
        owner = inspect.unwrap(target)
        return {name: _hint(owner, each, with_extras=with_extras) for name, each in annotations.items()}


def _hint(owner: Any, annotation: Any, *, with_extras: bool) -> Any:
    alone = types.SimpleNamespace(__annotations__={"it": annotation}, __globals__=getattr(owner, "__globals__", {}))
    try:
        return typing.get_type_hints(alone, include_extras=with_extras)["it"]
    except Exception as error:
        text = annotation if isinstance(annotation, str) else repr(annotation)
        return Unresolved(text, f"{type(error).__name__}: {error}")
