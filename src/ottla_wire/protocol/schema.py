"""The notation in which `messages/` writes Kafka's messages, and the tree it parses to.

One line is one field, indentation nests:

    replica_id      int32    0-14  =-1
    topics          [FetchTopic]
        topic       string   0-12
        topic_id    uuid     13+
        partitions  [FetchPartition]
            ...
    cluster_id      string?  12+   =null  @0
    struct Cursor
        name        string

`type` is a primitive, a struct's name, or either in brackets (an array); `?` makes it nullable. Then, in any order:
`4+`, `2-7`, `3` the versions that carry the field (all, if absent); `?7+` the versions in which it may be null;
`=value` its default; `@0` its tag, or `@0:12+` if it is tagged in those versions only.
`struct Name` at the left edge defines a struct that several fields share. `record Name 0-4 flexible=4+ type=5` begins
a record of an internal topic: its versions, the first flexible one if there is any, the type id of a metadata record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla_wire.protocol.primitives import ZERO_UUID

NO_VERSION_LIMIT = 0x7FFF

# Format characters of `struct`, big-endian, for the types with a fixed width.
FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
FIXED_WIDTHS = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}
VARIABLE_TYPES = ("string", "bytes", "records")
PRIMITIVES = frozenset(FIXED_FORMATS) | frozenset(VARIABLE_TYPES)


# Named tuples, as each dataclass would take half a millisecond of every start of a broker.
class VersionRange(NamedTuple):
    first: int
    last: int = NO_VERSION_LIMIT

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.last == NO_VERSION_LIMIT:
            return f"{self.first}+"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        if text.endswith("+"):
            return cls(int(text[:-1]))
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))


ALL_VERSIONS = VersionRange(0)
NO_VERSIONS = VersionRange(1, 0)


class Field(NamedTuple):
    name: str
    type: str  # a primitive, or the name of a struct
    is_array: bool
    struct: Struct | None  # None for primitives
    versions: VersionRange
    nullable: VersionRange
    default: object  # None for null, [] for arrays, {} for structs, else the value itself
    tag: int | None
    tagged: VersionRange

    def default_value(self) -> Any:
        """Return the default as a fresh value, so that no two messages share a list or dict."""
        if isinstance(self.default, list):
            return []
        if isinstance(self.default, dict):
            return {}
        return self.default

    def is_tagged(self, version: int, flexible: bool) -> bool:
        return flexible and self.tag is not None and version in self.tagged


class Struct:
    """Compared by identity: parsed once per message."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: list[Field] = []

    def fields_of(self, version: int) -> list[Field]:
        return [member for member in self.fields if version in member.versions]


class MessageSchema(NamedTuple):
    """One message in all of its versions: a request, a response, or a record of a coordinator."""

    name: str
    struct: Struct
    versions: VersionRange
    flexible_from: int  # NO_VERSION_LIMIT if never

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


def parse_message(name: str, text: str, *, versions: str, flexible: str | None) -> MessageSchema:
    """Parse the notation of this module. `flexible` is the first flexible version, as "9+", or None."""
    flexible_from = VersionRange.parse(flexible).first if flexible else NO_VERSION_LIMIT
    return MessageSchema(
        name=name, struct=_parse_struct(name, text), versions=VersionRange.parse(versions), flexible_from=flexible_from
    )


def _parse_struct(name: str, text: str) -> Struct:
    lines = [(len(line) - len(line.lstrip()), line.split()) for line in text.splitlines() if line.strip()]
    margin = min((indent for indent, _ in lines), default=0)
    root = Struct(name)
    shared = {words[1]: Struct(words[1]) for indent, words in lines if indent == margin and words[0] == "struct"}
    # The open structs, outermost first, each with the indentation of the line that opened it.
    open_structs: list[tuple[int, Struct | None]] = [(margin - 1, root)]
    for indent, words in lines:
        while indent <= open_structs[-1][0]:
            open_structs.pop()
        if words[0] == "struct" and indent == margin:
            open_structs = [(margin - 1, root), (indent, shared[words[1]])]
            continue
        parent = open_structs[-1][1]
        if parent is None:
            raise ValueError(f"{name}: {words[0]} is indented below a field that has no members")
        member = _parse_field(name, words, shared)
        parent.fields.append(member)
        is_shared = member.type in shared
        open_structs.append((indent, None if is_shared else member.struct))
    return root


def _parse_field(message: str, words: list[str], shared: dict[str, Struct]) -> Field:
    name, kind = words[:2]
    nullable = NO_VERSIONS
    if kind.endswith("?"):
        kind = kind[:-1]
        nullable = ALL_VERSIONS
    is_array = kind.startswith("[")
    kind = kind.strip("[]")
    versions, tag, tagged = ALL_VERSIONS, None, NO_VERSIONS
    default_text: str | None = None
    for word in words[2:]:
        if word[0] == "?":
            nullable = VersionRange.parse(word[1:])
        elif word[0] == "=":
            default_text = word[1:]
        elif word[0] == "@":
            number, _, limit = word[1:].partition(":")
            tag, tagged = int(number), VersionRange.parse(limit) if limit else ALL_VERSIONS
        else:
            versions = VersionRange.parse(word)
    struct = None
    if kind not in PRIMITIVES:
        if not kind[0].isupper():
            raise ValueError(f"{message}.{name}: unknown type {kind!r}")
        struct = shared.get(kind) or Struct(kind)
    return Field(
        name=name,
        type=kind,
        is_array=is_array,
        struct=struct,
        versions=versions,
        nullable=nullable,
        default=_default(kind, is_array, nullable != NO_VERSIONS, default_text),
        tag=tag,
        tagged=tagged,
    )


def _default(kind: str, is_array: bool, is_nullable: bool, text: str | None) -> object:
    if text == "null":
        return None
    if is_array:
        return []
    if kind == "string":
        return text or ""
    if kind == "records" and is_nullable:
        return None
    if kind in ("bytes", "records"):
        return b""
    if kind == "uuid":
        return ZERO_UUID
    if kind == "bool":
        return text == "true"
    if kind == "float64":
        return float(text or 0)
    return int(text or 0) if kind in FIXED_FORMATS else {}
