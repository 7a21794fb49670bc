"""A schema registry client, compatible with Confluent's REST API (also served by Karapace, Apicurio and Redpanda).

    registry = SchemaRegistry("http://registry:8081")
    Avro(Order, registry=registry)

A schema id never changes its meaning, so schemas are cached for ever; that an id is unknown is remembered for a few
seconds only, because the registry may be a replica that is behind. Everything is thread-safe and blocking; an event
loop asks a serde's `would_block` first and decodes in a thread.
"""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

from ottla.clock import Clock, SystemClock
from ottla.errors import ConfigError, RegistryUnavailable, where_explained
from ottla.serdes.registry_http import RegistryHttp, RegistryRefused

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")
SchemaType: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]

UNKNOWN_FOR_MS: Final = 10_000
"""How long an unknown schema id is not asked for again: a poison record should not become a request each time."""

_INCOMPATIBLE: Final = 409


class UnknownSchema(LookupError):
    """Treat bytes with this schema id as malformed: the registry is there, and does not have it."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note(where_explained("UnknownSchema"))


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses: the name it uses, and the subject and version that it is."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry keeps it."""

    id: int
    type: SchemaType
    text: str
    references: tuple[SchemaReference, ...] = ()
    subject: str | None = None
    version: int | None = None


class SchemaRegistry:
    """Looks schemas up by id, and registers them under subjects. One instance serves every topic and thread.

    `url` may name several addresses, separated by commas; credentials may be in it, or in `user` and `password`.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 5.0,
        attempts: int = 3,
        clock: Clock | None = None,
        http: RegistryHttp | None = None,
    ) -> None:
        self._http = http or RegistryHttp(
            url.split(","),
            user=user,
            password=password,
            headers=headers,
            tls=tls,
            timeout_s=timeout_s,
            attempts=attempts,
        )
        self.url = ",".join(self._http.urls)
        """The addresses, without credentials."""
        self._clock = clock or SystemClock()
        self._by_id: dict[int, RegisteredSchema] = {}
        self._unknown_until_ms: dict[int, int] = {}
        self._ids: dict[tuple[str, str, SchemaType], int] = {}
        # Held while asking, so that a burst of records with one new id is one request.
        self._asking = threading.Lock()

    def knows(self, schema_id: int) -> bool:
        """Whether `schema` would answer from memory."""
        return schema_id in self._by_id or self._unknown_until_ms.get(schema_id, 0) > self._clock.monotonic_ms()

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id. Raises `UnknownSchema` when there is none, `RegistryUnavailable` when unanswered."""
        known = self._by_id.get(schema_id)
        if known is not None:
            return known
        with self._asking:
            known = self._by_id.get(schema_id)
            if known is None:
                known = self._by_id[schema_id] = self._ask_for(schema_id)
        return known

    def register(
        self, subject: str, text: str, type: SchemaType = "AVRO", references: Sequence[SchemaReference] = ()
    ) -> int:
        """The id of this schema, added to the subject if it is new. Raises `ConfigError` when it is not compatible."""
        return self._id_of(f"/subjects/{_quoted(subject)}/versions", subject, text, type, references)

    def id_of(
        self, subject: str, text: str, type: SchemaType = "AVRO", references: Sequence[SchemaReference] = ()
    ) -> int:
        """The id of this schema under the subject. Raises `ConfigError` when it was not registered there."""
        return self._id_of(f"/subjects/{_quoted(subject)}", subject, text, type, references)

    def version_of(
        self, subject: str, text: str, type: SchemaType = "AVRO", references: Sequence[SchemaReference] = ()
    ) -> int:
        """The version that this schema is of the subject. Raises `UnknownSchema` when it was not registered there."""
        try:
            answer = self._http.request("POST", f"/subjects/{_quoted(subject)}", _body(text, type, references))
        except RegistryRefused as refused:
            raise UnknownSchema(f"schema registry {self.url}: {subject} has no such schema: {refused}") from refused
        return self._read(answer, lambda: _number(answer["version"]))

    def version(self, subject: str, version: int | Literal["latest"] = "latest") -> RegisteredSchema:
        """One version of a subject. Raises `UnknownSchema` when there is none."""
        try:
            answer = self._http.request("GET", f"/subjects/{_quoted(subject)}/versions/{version}")
        except RegistryRefused as refused:
            raise UnknownSchema(f"schema registry {self.url}: {subject} version {version}: {refused}") from refused
        return self._read(answer, lambda: _registered(_number(answer["id"]), answer))

    def text_of(self, path: str) -> str:
        """The schema that a path of the registry answers with, as `/schemas/ids/7?format=serialized`.

        Raises `UnknownSchema` when there is none.
        """
        try:
            answer = self._http.request("GET", path)
        except RegistryRefused as refused:
            raise UnknownSchema(f"schema registry {self.url}: {path}: {refused}") from refused
        return self._read(answer, lambda: _text(answer["schema"]))

    def subjects(self) -> list[str]:
        """Every subject."""
        answer = self._http.request("GET", "/subjects")
        return self._read(answer, lambda: _list_of(str, answer))

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, oldest first; none when there is no such subject."""
        try:
            answer = self._http.request("GET", f"/subjects/{_quoted(subject)}/versions")
        except RegistryRefused as refused:
            if refused.is_not_found:
                return []
            raise
        return self._read(answer, lambda: _list_of(int, answer))

    def is_compatible(self, subject: str, text: str, type: SchemaType = "AVRO") -> bool:
        """Whether this schema could become the subject's next version. True for a subject that has none."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest"
        try:
            answer = self._http.request("POST", path, _body(text, type, ()))
        except RegistryRefused as refused:
            if refused.is_not_found:
                return True
            raise
        return self._read(answer, lambda: bool(answer["is_compatible"]))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the rule for new versions (`BACKWARD`, `FULL`, `NONE`, ...), of one subject or of all."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}"
        self._http.request("PUT", path, {"compatibility": level})

    def _ask_for(self, schema_id: int) -> RegisteredSchema:
        if self._unknown_until_ms.get(schema_id, 0) > self._clock.monotonic_ms():
            raise UnknownSchema(f"schema registry {self.url} has no schema {schema_id}")
        try:
            answer = self._http.request("GET", f"/schemas/ids/{schema_id}")
        except RegistryRefused as refused:
            self._unknown_until_ms[schema_id] = self._clock.monotonic_ms() + UNKNOWN_FOR_MS
            raise UnknownSchema(f"schema registry {self.url} has no schema {schema_id}: {refused}") from refused
        return self._read(answer, lambda: _registered(schema_id, answer))

    def _id_of(
        self, path: str, subject: str, text: str, type: SchemaType, references: Sequence[SchemaReference]
    ) -> int:
        known = self._ids.get((subject, text, type))
        if known is not None:
            return known
        try:
            answer = self._http.request("POST", path, _body(text, type, references))
        except RegistryRefused as refused:
            is_incompatible = refused.code // 100 == _INCOMPATIBLE
            problem = "is not compatible with the versions before it" if is_incompatible else "was refused"
            raise ConfigError(f"schema registry {self.url}: schema for {subject} {problem}: {refused}") from refused
        schema_id = self._ids[subject, text, type] = self._read(answer, lambda: _number(answer["id"]))
        return schema_id

    def _read(self, answer: Any, read: Callable[[], T]) -> T:
        """What an answer says. One that is JSON and not a registry's (a proxy's, say) tells nothing about the schema,
        so it is an outage: no record becomes a dead letter because of it."""
        try:
            return read()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            shown = repr(answer)
            shown = shown if len(shown) <= 100 else f"{shown[:97]}..."
            raise RegistryUnavailable(
                f"schema registry {self.url}: answered {shown}, which is not the response of a schema registry"
            ) from error

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"


def _registered(schema_id: int, answer: Mapping[str, Any]) -> RegisteredSchema:
    type = answer.get("schemaType") or "AVRO"
    return RegisteredSchema(
        id=schema_id,
        type=cast(SchemaType, _text(type)),
        text=_text(answer["schema"]),
        references=tuple(
            SchemaReference(_text(reference["name"]), _text(reference["subject"]), _number(reference["version"]))
            for reference in answer.get("references") or ()
        ),
        subject=answer.get("subject"),
        version=answer.get("version"),
    )


def _number(value: Any) -> int:
    """An id or a version: what fits into the four bytes in front of a record."""
    if type(value) is int and 0 <= value < 2**31:
        return value
    raise ValueError(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(value)


def _list_of(kind: type[T], value: Any) -> list[T]:
    if isinstance(value, list) and all(isinstance(each, kind) for each in value):
        return value
    raise TypeError(value)


def _body(text: str, type: SchemaType, references: Sequence[SchemaReference]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": text}
    if type != "AVRO":  # left out for the oldest registries, which know only Avro
        body["schemaType"] = type
    if references:
        body["references"] = [{"name": r.name, "subject": r.subject, "version": r.version} for r in references]
    return body


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")
