"""State of a schema registry, as a state machine over its log.

A request is decided against the state and gives the records to append and the answer; `replay` is the only place where
the state changes. A registry that restarts replays the topic and is the same registry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, cast

from ottla.serdes.avro_codec import parse
from ottla.serdes.compatibility_levels import LEVELS
from ottla.serdes.protobuf_parser import parse_protobuf
from ottla.serdes.protobuf_source import source_of_registered
from ottla.serdes.registered_schema import SchemaType
from ottla.testing.registry.version import Version, incompatibilities, is_same

Json: TypeAlias = Any


class RegistryRefusal(Exception):
    """The registry's own "no": HTTP status, error code and message, as Confluent's registry gives them."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


class LogRecord(NamedTuple):
    """One record of `_schemas`: key and value as JSON values. A null value deletes."""

    key: dict[str, Any]
    value: dict[str, Any] | None


@dataclass(slots=True)
class RegistryState:
    """Subjects, versions, ids and compatibility levels."""

    subjects: dict[str, dict[int, Version]] = field(default_factory=dict)
    by_id: dict[int, Version] = field(default_factory=dict)
    levels: dict[str | None, str] = field(default_factory=lambda: {None: "BACKWARD"})

    def replay(self, record: LogRecord) -> None:
        """Change the state by one record of the log."""
        key, value = record
        if key.get("keytype") == "CONFIG":
            subject = key.get("subject")
            if value is not None:
                self.levels[subject] = value["compatibilityLevel"]
            elif subject is not None:
                self.levels.pop(subject, None)
        elif key.get("keytype") == "SCHEMA":
            versions = self.subjects.setdefault(key["subject"], {})
            if value is None:
                versions.pop(key["version"], None)
                return
            version = Version(
                value["subject"],
                value["version"],
                value["id"],
                cast(SchemaType, value.get("schemaType", "AVRO")),
                value["schema"],
                tuple((r["name"], r["subject"], r["version"]) for r in value.get("references", ())),
                value.get("deleted", False),
            )
            versions[version.version] = version
            self.by_id[version.id] = version

    def register(self, subject: str, body: Json) -> tuple[list[LogRecord], Json]:
        """Add a schema to a subject, or find it there."""
        wanted = self._wanted(subject, body)
        same = [version for version in self.live(subject) if is_same(version, wanted)]
        if same:
            return [], {"id": same[-1].id}
        broken = self._problems(subject, wanted, self.live(subject))
        if broken:
            raise RegistryRefusal(409, 409, f"Schema is not compatible with subject {subject}: {'; '.join(broken)}")
        known = next((version for version in self.by_id.values() if is_same(version, wanted)), None)
        schema_id = known.id if known else max(self.by_id, default=0) + 1
        number = max(self.subjects.get(subject, ()), default=0) + 1
        version = Version(subject, number, schema_id, wanted.type, wanted.schema, wanted.references)
        key = {"keytype": "SCHEMA", "subject": subject, "version": number, "magic": 1}
        return [LogRecord(key, {**version.as_json(), "deleted": False})], {"id": schema_id}

    def lookup(self, subject: str, body: Json) -> Json:
        """Return the version that a schema is of a subject."""
        versions = self._existing(subject)
        wanted = self._wanted(subject, body)
        for version in reversed(versions):
            if is_same(version, wanted):
                return version.as_json()
        raise RegistryRefusal(404, 40403, "Schema not found")

    def version(self, subject: str, number: str, *, deleted: bool = False) -> Version:
        """Return one version of a subject, or its latest; with `deleted` also a deleted one."""
        of_subject = self.subjects.get(subject, {})
        versions = [of_subject[each] for each in sorted(of_subject)] if deleted else self._existing(subject)
        if number in ("latest", "-1") and versions:
            return versions[-1]
        for version in versions:
            if str(version.version) == number:
                return version
        raise RegistryRefusal(404, 40402, f"Version {number} not found.")

    def schema(self, schema_id: str) -> Json:
        """Return a schema by its id. Deleted versions still answer: records with their id remain in topics."""
        found = self.by_id.get(int(schema_id)) if schema_id.isdigit() else None
        if found is None:
            raise RegistryRefusal(404, 40403, f"Schema {schema_id} not found")
        return {"schema": found.schema, **found.type_and_references}

    def uses(self, schema_id: str) -> Json:
        """Return the subjects and versions that have the schema of an id."""
        self.schema(schema_id)
        return [
            {"subject": version.subject, "version": version.version}
            for subject in sorted(self.subjects)
            for version in self.live(subject)
            if version.id == int(schema_id)
        ]

    def numbers(self, subject: str, *, deleted: bool = False) -> Json:
        """Return the versions of a subject; with `deleted` also the deleted ones."""
        if deleted and self.subjects.get(subject):
            return sorted(self.subjects[subject])
        return [version.version for version in self._existing(subject)]

    def names(self, *, deleted: bool = False) -> Json:
        """Return the subjects that have a version; with `deleted` also those whose versions are all deleted."""
        return sorted(each for each, versions in self.subjects.items() if (deleted and versions) or self.live(each))

    def referenced_by(self, subject: str, number: str) -> Json:
        """Return the ids of the schemas that refer to a version."""
        place = (subject, self.version(subject, number, deleted=True).version)
        return sorted(
            {
                version.id
                for each in self.subjects
                for version in self.live(each)
                if any(place == (used, at) for _, used, at in version.references)
            }
        )

    def delete(self, subject: str) -> tuple[list[LogRecord], Json]:
        """Soft-delete every version of a subject, and remove its compatibility level."""
        versions = self._existing(subject)
        records = [*(self._deletion(version) for version in versions), *self._level_deletion(subject)]
        return records, [version.version for version in versions]

    def delete_version(self, subject: str, number: str) -> tuple[list[LogRecord], Json]:
        """Soft-delete one version of a subject."""
        is_last = len(self._existing(subject)) == 1
        version = self.version(subject, number)
        return [self._deletion(version), *(self._level_deletion(subject) if is_last else ())], version.version

    def _level_deletion(self, subject: str) -> list[LogRecord]:
        key = {"keytype": "CONFIG", "subject": subject, "magic": 0}
        return [LogRecord(key, None)] if subject in self.levels else []

    def _deletion(self, version: Version) -> LogRecord:
        by = self.referenced_by(version.subject, str(version.version))
        if by:
            place = f"{version.subject} version {version.version}"
            raise RegistryRefusal(422, 42206, f"{place} is referenced by the schemas {', '.join(map(str, by))}")
        key = {"keytype": "SCHEMA", "subject": version.subject, "version": version.version, "magic": 1}
        return LogRecord(key, {**version.as_json(), "deleted": True})

    def is_compatible(self, subject: str, number: str, body: Json) -> Json:
        """Return whether a schema could follow a version (or the latest) of a subject."""
        against = self.version(subject, number)
        broken = self._problems(subject, self._wanted(subject, body), [against])
        return {"is_compatible": not broken, "messages": broken}

    def level(self, subject: str | None) -> Json:
        if subject is not None and subject not in self.levels:
            raise RegistryRefusal(404, 40408, f"Subject {subject} has no compatibility level of its own")
        return {"compatibilityLevel": self.levels[subject]}

    def set_level(self, subject: str | None, body: Json) -> tuple[list[LogRecord], Json]:
        level = str(body.get("compatibility", "")).upper()
        if level not in LEVELS:
            raise RegistryRefusal(422, 42203, f"Invalid compatibility level {level}, valid are {', '.join(LEVELS)}")
        key = {"keytype": "CONFIG", "subject": subject, "magic": 0}
        return [LogRecord(key, {"subject": subject, "compatibilityLevel": level})], {"compatibility": level}

    def unset_level(self, subject: str) -> tuple[list[LogRecord], Json]:
        """Remove a subject's own level. Returns what it was."""
        own = self.level(subject)
        return self._level_deletion(subject), own

    def live(self, subject: str) -> list[Version]:
        """Return the versions of a subject that are not deleted, oldest first."""
        versions = self.subjects.get(subject, {})
        return [versions[number] for number in sorted(versions) if not versions[number].deleted]

    def _existing(self, subject: str) -> list[Version]:
        versions = self.live(subject)
        if not versions:
            raise RegistryRefusal(404, 40401, f"Subject '{subject}' not found.")
        return versions

    def _wanted(self, subject: str, body: Json) -> Version:
        schema, type = body.get("schema"), body.get("schemaType") or "AVRO"
        if not isinstance(schema, str) or type not in ("AVRO", "JSON", "PROTOBUF"):
            raise RegistryRefusal(422, 42201, f"Invalid schema of type {type}")
        try:
            references = tuple((r["name"], r["subject"], r["version"]) for r in body.get("references") or ())
        except (KeyError, TypeError):
            raise RegistryRefusal(422, 42201, "Invalid references: wanted name, subject and version of each") from None
        wanted = Version(subject, 0, 0, cast(SchemaType, type), schema, references)
        try:
            if type == "AVRO":
                parse(json.loads(schema), using=self._used(references, ()))
            elif type == "JSON":
                json.loads(schema)
            else:
                parse_protobuf(source_of_registered(schema))
        except RegistryRefusal:
            raise
        except Exception as error:
            raise RegistryRefusal(422, 42201, f"Invalid {type} schema: {error}") from error
        return wanted

    def _used(self, references: Sequence[tuple[str, str, int]], above: tuple[str, ...]) -> list[Json]:
        found = []
        for _, subject, number in references:
            if subject in above:
                raise RegistryRefusal(422, 42201, f"References run in a circle: {subject}")
            version = self.version(subject, str(number))
            found += self._used(version.references, (*above, subject))
            found.append(json.loads(version.schema))
        return found

    def _problems(self, subject: str, wanted: Version, earlier: Sequence[Version]) -> list[str]:
        return incompatibilities(wanted, earlier, self.levels.get(subject, self.levels[None]), find=self.version)
