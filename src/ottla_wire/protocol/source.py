"""The small assembler that both compilers write Python through.

Generated functions carry no bookkeeping: each source line belongs to one field, so when one fails, the traceback's
line number names the field and the frame's locals hold the position. Locating an error costs nothing until there is
one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from ottla_wire.protocol.schema import FIXED_WIDTHS


class Source:
    """Lines of a Python function under construction, each with the field it serves."""

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self.names: dict[str, Any] = {}
        self.field = ""
        self._lines: list[str] = []
        self._fields: list[str] = []
        self._depth = 0
        self._counter = 0

    def emit(self, line: str) -> None:
        self._lines.append(" " * self._depth + line)
        self._fields.append(self.field)

    def block(self, opening: str) -> _Block:
        self.emit(opening)
        return _Block(self)

    def unique(self, prefix: str) -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def bind(self, prefix: str, value: object) -> str:
        """Make `value` reachable from the generated code, and return its name there."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.unique(prefix)
        self.names[name] = value
        return name

    def compile(self, function: str) -> tuple[Callable[..., Any], list[str]]:
        code = compile("\n".join(self._lines), self.filename, "exec")
        exec(code, self.names)
        compiled: Callable[..., Any] = self.names[function]
        return compiled, self._fields

    def indent(self) -> None:
        self._depth += 1

    def dedent(self) -> None:
        self._depth -= 1


class _Block:
    def __init__(self, source: Source) -> None:
        self._source = source

    def __enter__(self) -> None:
        self._source.indent()

    def __exit__(self, *_: object) -> None:
        self._source.dedent()


def run_width(formats: str) -> int:
    """Return bytes that a run of format codes (each one a key of FIXED_WIDTHS, space separated) takes."""
    return sum(FIXED_WIDTHS[code] for code in formats.split())


def locate(traceback: TracebackType | None, filename: str, fields: list[str]) -> tuple[str, dict[str, Any]]:
    """Return the field whose generated line raised, and that frame's locals."""
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            return fields[traceback.tb_lineno - 1], traceback.tb_frame.f_locals
        traceback = traceback.tb_next
    return "", {}
