"""An AsyncAPI document as one static page, in the console's style: no script, nothing loaded from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<header id="top"><span class="brand"><span class="mark">O</span>{title}</span></header>
<main>
{body}
</main>
</body>
</html>
"""
_VERBS: Final = {"receive": "Receives", "send": "Sends"}


def page_of(document: Mapping[str, Any]) -> str:
    """Return the page of a document that `document_of` made."""
    info = document["info"]
    return _page(f"{info['title']} {info['version']}", "\n".join(_body(document)))


def page_of_problem(title: str, problem: str) -> str:
    """Return a page that says why there is no document."""
    return _page(title, f'<h1>{escape(title)}</h1>\n<div class="problem">{escape(problem)}</div>')


def _page(title: str, body: str) -> str:
    style = files("ottla").joinpath("console", "static", "style.css").read_text("utf-8")
    return _PAGE.format(title=escape(title), style=style, body=body)


def _body(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h1>{escape(document['info']['title'])}</h1>"
    servers = document.get("servers", {})
    if servers:
        yield "<h2>Servers</h2>"
        yield from _table(
            ("name", "address", "protocol", "login"),
            [(name, each["host"], each["protocol"], _login(each)) for name, each in servers.items()],
        )
    for action, verb in _VERBS.items():
        operations = {name: each for name, each in document["operations"].items() if each["action"] == action}
        if not operations:
            continue
        yield f"<h2>{verb}</h2>"
        for name, operation in operations.items():
            yield from _operation(document, name, operation)
    schemas = document.get("components", {}).get("schemas", {})
    if schemas:
        yield "<h2>Schemas</h2>"
        for name, schema in schemas.items():
            yield f"<details><summary>{escape(name)}</summary>{_code(schema)}</details>"


def _operation(document: Mapping[str, Any], name: str, operation: Mapping[str, Any]) -> Iterator[str]:
    channel = _part(document, operation["channel"]["$ref"])
    address = channel.get("address") or "topic chosen at run time"
    yield f'<section><h3>{escape(address)} <span class="badge">{escape(name)}</span></h3>'
    if operation.get("description"):
        yield f"<p>{escape(operation['description'])}</p>"
    group = operation.get("bindings", {}).get("kafka", {}).get("groupId", {}).get("enum", [None])[0]
    facts = [("group", group), *_facts(operation), *_facts(channel), *_topic(channel)]
    yield from _table(("fact", "value"), [fact for fact in facts if fact[1] is not None])
    for reference in operation["messages"]:
        message = _part(document, reference["$ref"])
        parts = {
            "payload": message["payload"],
            "key": message["bindings"]["kafka"].get("x-ottla-key", message["bindings"]["kafka"]["key"]),
            "headers": message["headers"],
        }
        shown = "".join(f"<h3>{part}</h3>{_code(schema)}" for part, schema in parts.items())
        title = f'{escape(message["name"])} <span class="badge">{escape(message["contentType"])}</span>'
        yield f"<details><summary>{title}</summary>{shown}</details>"
    yield "</section>"


def _facts(node: Mapping[str, Any]) -> list[tuple[str, Any]]:
    prefix = "x-ottla-"
    return [(name.removeprefix(prefix), value) for name, value in node.items() if name.startswith(prefix)]


def _topic(channel: Mapping[str, Any]) -> list[tuple[str, Any]]:
    binding = channel.get("bindings", {}).get("kafka", {})
    return [(name, binding.get(name)) for name in ("partitions", "replicas", "topicConfiguration")]


def _login(server: Mapping[str, Any]) -> str:
    return ", ".join(str(each["$ref"]).rpartition("/")[2] for each in server.get("security", ())) or "none"


def _part(document: Mapping[str, Any], reference: str) -> Any:
    node: Any = document
    for name in reference.removeprefix("#/").split("/"):
        node = node[name]
    return node


def _table(titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Iterator[str]:
    if not rows:
        return
    heads = "".join(f"<th>{escape(title)}</th>" for title in titles)
    yield f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>'
    for row in rows:
        yield f"<tr>{''.join(f'<td>{escape(_text(cell))}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _code(schema: Any) -> str:
    """Return a schema as text; the source of a Protobuf file as it is."""
    inner = schema.get("schema") if isinstance(schema, Mapping) else None
    text = inner if isinstance(inner, str) else json.dumps(schema, indent=2, ensure_ascii=False)
    return f"<pre><code>{escape(text)}</code></pre>"
