"""Which messages there are: one module per API under `messages/`, loaded when first asked for."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import NamedTuple

from ottla_wire.protocol.api_keys import ApiKey
from ottla_wire.protocol.exceptions import UnsupportedVersion
from ottla_wire.protocol.schema import NO_VERSION_LIMIT, MessageSchema, parse_message


class ApiSchema(NamedTuple):
    """What a module of `messages/` says about its API."""

    api_key: ApiKey
    request: MessageSchema
    response: MessageSchema
    summary: str  # the first line of the module's docstring

    @property
    def min_version(self) -> int:
        return self.request.versions.first

    @property
    def max_version(self) -> int:
        return self.request.versions.last

    @property
    def versions(self) -> range:
        return range(self.min_version, self.max_version + 1)

    @property
    def flexible_from(self) -> int | None:
        """The first version with compact lengths and tagged fields, or None."""
        first = self.request.flexible_from
        return None if first == NO_VERSION_LIMIT else first


@cache
def api(api_key: ApiKey) -> ApiSchema:
    name = ApiKey(api_key).name
    try:
        module = import_module(f"ottla_wire.protocol.messages.{name.lower()}")
    except ModuleNotFoundError:
        raise UnsupportedVersion(f"there is no message table for {name}") from None
    words = {"versions": module.VERSIONS, "flexible": module.FLEXIBLE}
    title = name.title().replace("_", "")
    return ApiSchema(
        api_key=ApiKey(api_key),
        request=parse_message(f"{title} request", module.REQUEST, **words),
        response=parse_message(f"{title} response", module.RESPONSE, **words),
        summary=(module.__doc__ or "").partition("\n")[0],
    )


def request(api_key: ApiKey) -> MessageSchema:
    return api(api_key).request


def response(api_key: ApiKey) -> MessageSchema:
    return api(api_key).response


def all_apis() -> list[ApiSchema]:
    """Return every API with a message table, by key."""
    return [api(key) for key in ApiKey if _has_table(key)]


def _has_table(api_key: ApiKey) -> bool:
    try:
        api(api_key)
    except UnsupportedVersion:
        return False
    return True


# ---- records of the internal topics, by Kafka's names -------------------------------------------------------------

RECORD_MODULES = (
    "offset_records",
    "group_records",
    "share_group_records",
    "share_state_records",
    "transaction_records",
    "membership",
    "metadata_records",
)


@cache
def record(name: str) -> MessageSchema:
    options, fields = _record_tables()[name]
    return parse_message(name, fields, versions=options["versions"], flexible=options.get("flexible"))


def record_names() -> list[str]:
    return list(_record_tables())


@cache
def _record_tables() -> dict[str, tuple[dict[str, str], str]]:
    tables: dict[str, tuple[dict[str, str], str]] = {}
    for module_name in RECORD_MODULES:
        tables |= parse_record_tables(import_module(f"ottla_wire.protocol.messages.{module_name}").RECORDS)
    return tables


def parse_record_tables(text: str) -> dict[str, tuple[dict[str, str], str]]:
    """Return what the `record` line of each record says, and its fields. Raises ValueError for an invalid line."""
    before, *found = re.split(r"^record ", text, flags=re.MULTILINE)
    if before.strip():
        raise ValueError(f"{before.strip()!r} stands before the first record")
    tables = {}
    for table in found:
        first_line, _, fields = table.partition("\n")
        name, *words = first_line.split()
        if not words:
            raise ValueError(f"{name}: found no versions")
        options = {"versions": words[0]}
        for word in words[1:]:
            option, _, value = word.partition("=")
            if option not in ("flexible", "type") or not value:
                raise ValueError(f"{name}: found {word!r}, wanted flexible=<versions> or type=<number>")
            options[option] = value
        tables[name] = options, fields
    return tables


@cache
def metadata_record_types() -> dict[str, int]:
    """Return the type id in the frame of each metadata record."""
    return {name: int(options["type"]) for name, (options, _) in _record_tables().items() if "type" in options}


@cache
def metadata_record_names() -> dict[int, str]:
    return {type_id: name for name, type_id in metadata_record_types().items()}
