"""The schemas of a registry as `ottla apply export` writes them: a file each, and a table of the cluster file."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.browse.cluster_file_text import toml_key, toml_text
from ottla.browse.schema_files import SUFFIXES
from ottla.errors import InputError
from ottla.serdes.registry import UnknownSchema

if TYPE_CHECKING:
    from ottla.serdes.registered_schema import RegisteredSchema
    from ottla.serdes.registry_admin import RegistryAdmin

_LONGEST_NAME: Final = 200


def export_schemas(registry: RegistryAdmin, beside: Path) -> tuple[str, int]:
    """Write the latest schema of each subject to a file in a folder beside the cluster file. Returns the tables that
    declare them, and how many files were written. InputError where a file cannot be written."""
    from ottla.admin.facts.facts_file import write_whole

    folder = beside.with_name(f"{beside.stem}-schemas")
    tables, written = [], 0
    for subject in registry.subjects():
        try:
            schema = registry.version(subject)
        except UnknownSchema:  # deleted meanwhile
            continue
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: {error.strerror or error}") from None
        name = _file_name(subject, schema)
        write_whole(folder / name, schema.text.encode())
        written += 1
        tables.append("\n".join(_table(subject, schema, f"{folder.name}/{name}", registry.level(subject))) + "\n")
    return "\n".join(tables), written


def _table(subject: str, schema: RegisteredSchema, file: str, level: str | None) -> Iterator[str]:
    yield f"[schemas.{toml_key(subject)}]"
    yield f"file = {toml_text(file)}"
    if schema.references:
        used = [f"{each.name}={each.subject}:{each.version}" for each in schema.references]
        yield f"references = [{', '.join(toml_text(each) for each in used)}]"
    if level is not None:
        yield f"compatibility = {toml_text(level)}"


def _file_name(subject: str, schema: RegisteredSchema) -> str:
    """Return a name that no other subject has, without a slash."""
    plain = urllib.parse.quote(subject, safe="")
    if len(plain) > _LONGEST_NAME:
        raise InputError(f"subject {subject[:100]!r}: found a name that is too long for a file; declare it by hand")
    return plain + SUFFIXES[schema.type]
