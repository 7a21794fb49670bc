"""Write docs/reference/protocol_support.md from the table that the broker's handlers are bound to.

    python tools/protocol_support.py

Versions come from that table, purpose and Kafka's versions from the codec's message tables, and how an API behaves and
what is not done from its module's docstring. A test fails when the page is behind.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import broker_embedded.server.apis  # noqa: F401  # fills the table
from broker_embedded.server.requests.registry import TABLE, Api
from ottla_wire.protocol import ApiKey, schemas
from ottla_wire.protocol.schemas import ApiSchema

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "protocol_support.md"

HEAD = """\
# What the embedded broker speaks

<!-- Written by tools/protocol_support.py from the broker's own table of handlers: change those, not this page. -->

The embedded broker serves {served} APIs. "Kafka 4" is the range that the codec knows: all that Apache Kafka 4 accepts.
Clients learn the served ranges from ApiVersions, which reads the same table as this page. A request for an API that is
not served closes the connection, as a Kafka broker does. How each behaves and what is not done stands below the tables.

| API | key | served | Kafka 4 | what it does |
|---|---|---|---|---|
"""

UNSERVED = """
## Known to the codec only

These messages can be encoded and decoded, by tests and by other tools, but no handler serves them.

| API | key | Kafka 4 | what it does |
|---|---|---|---|
"""

DETAILS = """
## API by API

"""


def render() -> str:
    served = [TABLE[key] for key in sorted(TABLE)]
    known = {schema.api_key: schema for schema in schemas.all_apis()}
    page = HEAD.format(served=len(served))
    page += "".join(_served_row(api, known[api.key]) for api in served)
    unserved = [schema for key, schema in known.items() if key not in TABLE]
    if unserved:
        page += UNSERVED + "".join(_unserved_row(schema) for schema in unserved)
    return page + DETAILS + "\n".join(_details(api) for api in served)


def _served_row(api: Api, schema: ApiSchema) -> str:
    versions = _range(api.min_version, api.max_version)
    if api.listed_from != api.min_version:
        versions += f" (listed from {api.listed_from})"
    cells = [_name(api.key), str(int(api.key)), versions, _known(schema), _purpose(schema)]
    return _row(cells)


def _unserved_row(schema: ApiSchema) -> str:
    return _row([_name(schema.api_key), str(int(schema.api_key)), _known(schema), _purpose(schema)])


def _details(api: Api) -> str:
    """What the handler's own module says, under its name."""
    return f"### {_name(api.key)}\n\n{inspect.getdoc(inspect.getmodule(api.handler)) or ''}\n"


def _name(key: ApiKey) -> str:
    return key.name.title().replace("_", "")


def _known(schema: ApiSchema) -> str:
    return _range(schema.min_version, schema.max_version)


def _purpose(schema: ApiSchema) -> str:
    return re.sub(r"^\w+: ", "", schema.summary).rstrip(".")


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render())
    sys.stdout.write(f"wrote {PAGE.name}\n")
