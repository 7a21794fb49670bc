"""Which message stands at which place of a registered Protobuf file.

A registry has a file as its serialized descriptor in base64, or as its source. Only the names of messages and their
order are wanted of it, so imports are not followed, and source is read as words and braces.

Clients do not agree on what counts as a place: descriptors have a nested message for each map field (and source a
`group`), which Java's client passes over and Python's counts. Both readings of a path are given.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto

_MOST_DEPTH: Final = 100
_WORD: Final = re.compile(
    r"""(?P<passed>\s+|//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z))
    |(?P<text>"[^"\\\n]*(?:\\.[^"\\\n]*)*"?|'[^'\\\n]*(?:\\.[^'\\\n]*)*'?)
    |(?P<word>\.?[A-Za-z_][\w.]*|[0-9][\w.]*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class MessagePlace:
    """A message of a file, and its nested messages, in order."""

    full_name: str
    is_made: bool = False
    """Whether protoc makes it of a field: the entry of a map, or a group."""
    nested: list[MessagePlace] = field(default_factory=list)


def messages_in(text: str) -> list[MessagePlace]:
    """Return the messages of a registered file. Raises ValueError for invalid text."""
    raw = descriptor_in(text)
    if raw is not None:
        return messages_of(raw)
    return _messages_in_source(text)


def descriptor_in(text: str) -> bytes | None:
    """Return the serialized descriptor that a registered text is in base64; None for source."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def messages_of(descriptor: bytes) -> list[MessagePlace]:
    """Return the messages of a serialized descriptor. Raises ValueError for invalid bytes."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(descriptor)
    except DecodeError as error:
        raise ValueError(f"not a descriptor of a Protobuf file: {error}") from error
    return [_place(message, file.package) for message in file.message_type]


def names_at(messages: Sequence[MessagePlace], path: Sequence[int]) -> set[str]:
    """Return the full names of the message at a path of indexes, by both ways of counting. Empty: none."""
    found = set()
    for passes_made in (False, True):
        among, at = messages, None
        for index in path:
            counted = [message for message in among if not (passes_made and message.is_made)]
            at = counted[index] if index < len(counted) else None
            if at is None:
                break
            among = at.nested
        if at is not None:
            found.add(at.full_name)
    return found


def paths_to(messages: Sequence[MessagePlace], full_name: str) -> set[tuple[int, ...]]:
    """Return the index paths of a message, in both ways in which clients count."""
    found: set[tuple[int, ...]] = set()
    for passes_made in (False, True):
        for path, place in _walk(messages, (), passes_made=passes_made):
            if place.full_name == full_name:
                found.add(path)
    return found


def names_in(messages: Sequence[MessagePlace]) -> set[str]:
    """Return the full names of all messages that are declared."""
    return {place.full_name for _, place in _walk(messages, (), passes_made=True)}


def _walk(
    messages: Sequence[MessagePlace], above: tuple[int, ...], *, passes_made: bool
) -> Iterator[tuple[tuple[int, ...], MessagePlace]]:
    counted = [message for message in messages if not (passes_made and message.is_made)]
    for index, message in enumerate(counted):
        path = (*above, index)
        yield path, message
        yield from _walk(message.nested, path, passes_made=passes_made)


def _place(message: DescriptorProto, above: str) -> MessagePlace:
    name = f"{above}.{message.name}" if above else message.name
    place = MessagePlace(name, message.options.map_entry, [_place(each, name) for each in message.nested_type])
    groups = {each.type_name.rpartition(".")[2] for each in message.field if each.type == each.TYPE_GROUP}
    for each in place.nested:
        each.is_made = each.is_made or each.full_name.rpartition(".")[2] in groups
    return place


def _messages_in_source(text: str) -> list[MessagePlace]:
    """Follow the blocks of a file's source."""
    file = MessagePlace("")  # its name is the package
    blocks: list[MessagePlace | None] = []  # those that are open; None: of something else than a message

    def add(name: str, *, is_made: bool = False) -> MessagePlace:
        above = next((block for block in reversed(blocks) if block is not None), file)
        place = MessagePlace(f"{above.full_name}.{name}" if above.full_name else name, is_made)
        above.nested.append(place)
        return place

    statement: list[str] = []
    for word in words_of(text):
        if word == "{":
            if len(blocks) >= _MOST_DEPTH:
                raise ValueError(f"not the source of a Protobuf file: blocks are nested more than {_MOST_DEPTH} deep")
            if statement[:1] in (["export"], ["local"]):
                statement = statement[1:]
            group = statement.index("group") if "group" in statement[:2] else -1
            if statement[:1] == ["message"] and len(statement) == 2:
                blocks.append(add(statement[1]))
            elif group >= 0 and statement[group + 2 : group + 3] == ["="]:
                blocks.append(add(statement[group + 1], is_made=True))
            else:
                blocks.append(None)
        elif word == "}":
            if not blocks:
                raise ValueError("not the source of a Protobuf file: a block ends that was not begun")
            blocks.pop()
        elif word == ";":
            if statement[:1] == ["package"] and len(statement) == 2:
                file.full_name = statement[1]
            elif statement[:2] == ["map", "<"] and ">" in statement and blocks and blocks[-1] is not None:
                for name in statement[statement.index(">") + 1 :][:1]:
                    entry = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
                    add(f"{entry}Entry", is_made=True)
        else:
            statement.append(word)
            continue
        statement = []
    if blocks:
        raise ValueError("not the source of a Protobuf file: a block does not end")
    return file.nested


def words_of(source: str) -> Iterator[str]:
    """Yield the words, numbers, texts and signs of a file's source, without comments."""
    for match in _WORD.finditer(source):
        if match.lastgroup != "passed":
            yield match.group()
