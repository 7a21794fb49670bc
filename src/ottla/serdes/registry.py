"""A schema registry client, compatible with Confluent's REST API (also served by Karapace, Apicurio and Redpanda).

    registry = SchemaRegistry("http://registry:8081")
    Avro(Order, registry=registry)

A schema id never changes its meaning, so schemas are cached for ever; that an id is unknown is remembered for a while
only (`lookups`), because the registry may be a replica that is behind. Everything is thread-safe and blocking; an event
loop asks a serde's `would_block` first and decodes in a thread.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from ottla.clock import Clock, SystemClock
from ottla.errors import ConfigError, RegistryUnavailable, where_explained
from ottla.serdes.lookups import Lookups
from ottla.serdes.registered_schema import (
    LARGEST_ID,
    RegisteredSchema,
    SchemaReference,
    SchemaType,
    SchemaVersions,
    as_text,
    list_of,
    number,
    registered,
    request_body,
)
from ottla.serdes.registry_http import RegistryHttp, RegistryRefused
from ottla.showing import shown

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")
MOST_REFERENCES: Final = 1_000
"""Schemas that one schema may refer to, directly and through others."""
MOST_IMPORTS_DEEP: Final = 100

_INCOMPATIBLE: Final = 409


def referenced(
    versions: SchemaVersions, schema: RegisteredSchema, *, name_of: Callable[[SchemaReference], str | None]
) -> list[tuple[SchemaReference, RegisteredSchema]]:
    """Return the schemas that a schema refers to, each once, after those that it refers to itself. They are
    distinguished by their names; those without one are left out. Raises `ValueError` for a cycle, and for
    too many of them."""
    found: dict[str, tuple[SchemaReference, RegisteredSchema]] = {}

    def add(references: Sequence[SchemaReference], above: tuple[str, ...]) -> None:
        for reference in references:
            name = name_of(reference)
            if name in above:
                raise ValueError(f"schema references form a cycle: {' → '.join((*above, name))}")
            if name is None or name in found:
                continue
            if len(found) >= MOST_REFERENCES or len(above) >= MOST_IMPORTS_DEEP:
                raise ValueError(f"more than {MOST_REFERENCES} schemas, or {MOST_IMPORTS_DEEP} within each other")
            used = versions.version(reference.subject, reference.version, deleted=True)
            add(used.references, (*above, name))
            found[name] = (reference, used)

    add(schema.references, ())
    return list(found.values())


class UnknownSchema(LookupError):
    """Treat bytes with this schema id as malformed: the registry is there, and does not have it."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.add_note(where_explained("UnknownSchema"))


class UnusableSchema(ValueError):
    """Treat bytes with this schema id as malformed: the registry has it, and it is no schema of the wanted format."""


class SchemaRegistry:
    """Looks schemas up by id, and registers them under subjects. One instance serves every topic and thread.

    `url` names one or several addresses, separated by commas. An address gets the credentials that stand in it
    (`https://user:password@host:8081`), or else `user` and `password`. `headers` go to every address. `timeout_s`
    (seconds) bounds one exchange with one address as a whole, except for looking up its name; a request is tried on
    each address up to `attempts` times, with jittered pauses. `tls` is for `https` addresses; by default certificates
    are checked against the system's.

    Raises `ConfigError` for what cannot work.
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
        if not isinstance(url, str):
            raise ConfigError(f"SchemaRegistry: url: found {shown(url)}, wanted addresses as text, separated by commas")
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
        self.clock = clock or SystemClock()
        self._by_id: Lookups[int, RegisteredSchema] = Lookups(self.clock, refusals=(UnknownSchema,))
        # Two, because what was not found under a subject may still be registered there.
        self._registered: Lookups[tuple[str, str, SchemaType], int] = Lookups(self.clock, refusals=(ConfigError,))
        self._looked_up: Lookups[tuple[str, str, SchemaType], int] = Lookups(self.clock, refusals=(ConfigError,))
        self._versions: Lookups[tuple[str, str, SchemaType], int] = Lookups(self.clock)

    def knows(self, schema_id: int) -> bool:
        """Return whether `schema` would answer from memory."""
        return self._by_id.answers(schema_id) or schema_id > LARGEST_ID

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with this id. Raises `UnknownSchema` when there is none, `RegistryUnavailable` when
        unanswered.
        """
        known = self._by_id.found.get(schema_id)
        if known is not None:
            return known
        if schema_id > LARGEST_ID:
            raise UnknownSchema(f"schema registry {self.url}: it has no schema {schema_id}: ids end at {LARGEST_ID}")
        return self._by_id.get(schema_id, lambda: self._ask_for(schema_id))

    def register(
        self, subject: str, text: str, type: SchemaType = "AVRO", references: Sequence[SchemaReference] = ()
    ) -> int:
        """Return the id of this schema, added to the subject if it is new. Raises `ConfigError` when it is not
        compatible."""
        path = f"/subjects/{quoted(subject)}/versions"
        return self._id_of(self._registered, path, subject, text, type, references)

    def id_of(
        self, subject: str, text: str, type: SchemaType = "AVRO", references: Sequence[SchemaReference] = ()
    ) -> int:
        """Return the id of this schema under the subject. Raises `ConfigError` when it was not registered there."""
        return self._id_of(self._looked_up, f"/subjects/{quoted(subject)}", subject, text, type, references)

    def version_of(
        self, subject: str, text: str, type: SchemaType = "AVRO", references: Sequence[SchemaReference] = ()
    ) -> int:
        """Return the version that this schema is of the subject. Raises `UnknownSchema` when it was not registered
        there."""

        def ask() -> int:
            path = f"/subjects/{quoted(subject)}"
            answer = self._request("POST", path, request_body(text, type, references), f"{subject} has no such schema")
            return self._read(answer, lambda: number(answer["version"]))

        return self._versions.get((subject, text, type), ask)

    def version(
        self, subject: str, version: int | Literal["latest"] = "latest", *, deleted: bool = False
    ) -> RegisteredSchema:
        """Return one version of a subject; with `deleted` also a soft-deleted one, which other schemas may reference.
        Raises `UnknownSchema` when there is none.
        """
        path = f"/subjects/{quoted(subject)}/versions/{version}{'?deleted=true' if deleted else ''}"
        answer = self._request("GET", path, None, f"{subject} version {version}")
        return self._read(answer, lambda: registered(number(answer["id"]), answer))

    def text_of(self, path: str) -> str:
        """Return the schema at a path of the registry, such as `/schemas/ids/7?format=serialized`.

        Raises `UnknownSchema` when there is none.
        """
        answer = self._request("GET", path, None, path)
        return self._read(answer, lambda: as_text(answer["schema"]))

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Return every subject, sorted; with `deleted` also the soft-deleted ones."""
        answer = self._request("GET", f"/subjects{'?deleted=true' if deleted else ''}", None, "the list of subjects")
        return self._read(answer, lambda: sorted(list_of(str, answer)))

    def versions(self, subject: str) -> list[int]:
        """Return the versions of a subject, oldest first; none for an unknown subject."""
        try:
            answer = self._request("GET", f"/subjects/{quoted(subject)}/versions", None, subject)
        except UnknownSchema:
            return []
        return self._read(answer, lambda: list_of(int, answer))

    def is_compatible(self, subject: str, text: str, type: SchemaType = "AVRO") -> bool:
        """Return whether this schema could become the subject's next version. True for a subject without versions."""
        path = f"/compatibility/subjects/{quoted(subject)}/versions/latest"
        try:
            answer = self._request("POST", path, request_body(text, type, ()), subject)
        except UnknownSchema:
            return True
        return self._read(answer, lambda: bool(answer["is_compatible"]))

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        """Set the rule for new versions (`BACKWARD`, `FULL`, `NONE`, ...), of one subject or of all."""
        path = "/config" if subject is None else f"/config/{quoted(subject)}"
        self._request("PUT", path, {"compatibility": level}, f"compatibility {level}")

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None, what: str) -> Any:
        """Send a request. Raises `UnknownSchema` if the registry does not have the schema, `ConfigError` if it rejects
        the request. Any other response is an outage: it says nothing about the record."""
        try:
            return self._http.request(method, path, body)
        except RegistryRefused as refused:
            other = RegistryUnavailable if method == "GET" else ConfigError
            kind = UnknownSchema if refused.is_not_found else other
            raise kind(f"schema registry {self.url}: {what}: {refused}") from refused

    def _ask_for(self, schema_id: int) -> RegisteredSchema:
        answer = self._request("GET", f"/schemas/ids/{schema_id}", None, f"it has no schema {schema_id}")
        return self._read(answer, lambda: registered(schema_id, answer))

    def _id_of(
        self,
        ids: Lookups[tuple[str, str, SchemaType], int],
        path: str,
        subject: str,
        text: str,
        type: SchemaType,
        references: Sequence[SchemaReference],
    ) -> int:
        def ask() -> int:
            try:
                answer = self._http.request("POST", path, request_body(text, type, references))
            except RegistryRefused as refused:
                is_incompatible = refused.code // 100 == _INCOMPATIBLE
                problem = "is not compatible with the versions before it" if is_incompatible else "was refused"
                raise ConfigError(f"schema registry {self.url}: schema for {subject} {problem}: {refused}") from refused
            return self._read(answer, lambda: number(answer["id"]))

        key = (subject, text, type)
        if key not in ids.found:
            schema_id = ids.get(key, ask)
            for each in (self._registered, self._looked_up):
                each.put(key, schema_id)
        return ids.found[key]

    def _read(self, answer: Any, read: Callable[[], T]) -> T:
        """Return the parsed response. JSON that no registry sends (a proxy's, for example) is an outage: no record
        becomes a dead letter because of it."""
        try:
            return read()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = repr(answer)
            text = text if len(text) <= 100 else f"{text[:97]}..."
            raise RegistryUnavailable(
                f"schema registry {self.url}: answered {text}, which is not the response of a schema registry"
            ) from error

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"


def quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")
