"""What people do with a schema registry, beside what serdes ask: list, compare, delete, set compatibility levels.

Same addresses, credentials and TLS as `SchemaRegistry`. Nothing here is cached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.serdes.registered_schema import SchemaReference, SchemaType, as_text, list_of, number, request_body
from ottla.serdes.registry import SchemaRegistry, UnknownSchema, quoted


class RegistryAdmin(SchemaRegistry):
    """A client of the registry's whole REST API. Every method raises `RegistryUnavailable` without an answer,
    `UnknownSchema` for a subject or version that is not there, and `ConfigError` for what the registry refuses."""

    @classmethod
    def beside(cls, registry: SchemaRegistry) -> RegistryAdmin:
        """Return a client with the addresses, the login and the TLS of another, which a serde has."""
        return cls(registry.url, http=registry._http, clock=registry.clock)

    def all_versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject, oldest first; with `deleted` also the soft-deleted ones."""
        path = f"/subjects/{quoted(subject)}/versions{'?deleted=true' if deleted else ''}"
        answer = self._request("GET", path, None, subject)
        return self._read(answer, lambda: sorted(list_of(int, answer)))

    def incompatibilities(
        self, subject: str, text: str, type: SchemaType = "AVRO", references: Sequence[SchemaReference] = ()
    ) -> list[str]:
        """Return why a schema cannot become the subject's next version by the subject's level. Empty if it can, and for
        a subject without versions. A registry that gives no reason gives one sentence.
        """
        body = request_body(text, type, references)
        is_transitive = (self.level(subject) or self.level() or "").endswith("_TRANSITIVE")
        # Version by version: not every registry has the request that compares with all of them.
        against = self.versions(subject) if is_transitive else ["latest"]
        found: list[str] = []
        for version in against:
            path = f"/compatibility/subjects/{quoted(subject)}/versions/{version}?verbose=true"
            try:
                answer = self._request("POST", path, body, f"check for {subject}")
            except UnknownSchema:
                continue
            found += self._read(answer, lambda answer=answer: _reasons(answer))  # type: ignore[misc]
        return list(dict.fromkeys(found))

    def level(self, subject: str | None = None) -> str | None:
        """Return the compatibility level of the registry; of a subject its own, None if it has none."""
        path = "/config" if subject is None else f"/config/{quoted(subject)}"
        try:
            answer = self._request("GET", path, None, f"compatibility of {subject or 'the registry'}")
        except UnknownSchema:
            if subject is None:
                raise
            return None
        return self._read(answer, lambda: as_text(answer.get("compatibilityLevel") or answer["compatibility"]))

    def unset_level(self, subject: str) -> None:
        """Remove a subject's own compatibility level: the registry's holds for it. No error if it has none."""
        try:
            self._request("DELETE", f"/config/{quoted(subject)}", None, f"compatibility of {subject}")
        except UnknownSchema:
            return

    def referenced_by(self, subject: str, version: int) -> list[int]:
        """Return the ids of the schemas that refer to this version."""
        path = f"/subjects/{quoted(subject)}/versions/{version}/referencedby"
        answer = self._request("GET", path, None, f"references to {subject} version {version}")
        return self._read(answer, lambda: sorted(list_of(int, answer)))

    def uses(self, schema_id: int) -> list[tuple[str, int]]:
        """Return the subjects and versions that have the schema of this id."""
        answer = self._request("GET", f"/schemas/ids/{schema_id}/versions", None, f"schema {schema_id}")

        def read() -> list[tuple[str, int]]:
            return sorted((as_text(each["subject"]), number(each["version"])) for each in list_of(dict, answer))

        return self._read(answer, read)

    def delete_subject(self, subject: str) -> None:
        """Soft-delete every version of a subject. Their ids still answer."""
        self._request("DELETE", f"/subjects/{quoted(subject)}", None, subject)

    def delete_version(self, subject: str, version: int) -> None:
        """Soft-delete one version of a subject. Its id still answers."""
        path = f"/subjects/{quoted(subject)}/versions/{version}"
        self._request("DELETE", path, None, f"{subject} version {version}")


def _reasons(answer: Any) -> list[str]:
    if answer["is_compatible"] is True:
        return []
    found = [str(each) for each in answer.get("messages") or ()]
    return found or ["the registry gave no reason"]
