"""Whether messages of one Protobuf file can be read with another: by field numbers, as the wire format has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_OPENS: Final = re.compile(r"\s*(message|enum|oneof) (\w+) \{")
_FIELD: Final = re.compile(r"\s*(?:(optional|repeated|required) )?(map<[^>]+>|[\w.]+) (\w+) = (\d+);")
_SAME_BYTES: Final = (
    {"int32", "uint32", "int64", "uint64", "bool"},
    {"sint32", "sint64"},
    {"string", "bytes"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
)
"""Types of which one is read as the other."""


def reading_problems(*, reader: str, writer: str) -> list[str]:
    """Return why a reader with one source text cannot read what a writer with the other wrote."""
    wanted, written = _fields(reader), _fields(writer)
    found = []
    for message, fields in wanted.items():
        own = written.get(message)
        if own is None:
            continue  # a message that is new is read where a field of it is
        for number, (label, kind, name) in sorted(fields.items()):
            place = f"{message}.{name} = {number}"
            if number not in own:
                if label == "required":
                    found.append(f"{place}: reader requires it, writer has no such field")
                continue
            _, other, _ = own[number]
            if kind != other and not any({kind, other} <= same for same in _SAME_BYTES):
                found.append(f"{place}: reader wants {kind}, writer has {other}")
            elif (label == "repeated") != (own[number][0] == "repeated"):
                found.append(f"{place}: repeated in one of them only")
    found += [f"{message}: the reader has no such message" for message in written if message not in wanted]
    return found


def _fields(source: str) -> Mapping[str, dict[int, tuple[str, str, str]]]:
    """Return the fields of each message by number: (label, type, name). For text as `source_of` writes it."""
    found: dict[str, dict[int, tuple[str, str, str]]] = {}
    blocks: list[tuple[str, str]] = []
    for line in source.splitlines():
        opens, field = _OPENS.match(line), _FIELD.match(line)
        if opens is not None:
            blocks.append((opens[1], opens[2]))
            if opens[1] == "message":
                found.setdefault(_name(blocks), {})
        elif line.strip() == "}" and blocks:
            blocks.pop()
        elif field is not None and blocks and blocks[-1][0] != "enum":
            found[_name(blocks)][int(field[4])] = (field[1] or "", field[2], field[3])
    return found


def _name(blocks: list[tuple[str, str]]) -> str:
    return ".".join(name for kind, name in blocks if kind == "message")
