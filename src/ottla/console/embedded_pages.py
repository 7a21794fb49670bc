"""The embedded broker by its control API: kill and resume, faults, links, disks, the virtual clock, `explain`."""

from __future__ import annotations

from typing import Any, Final

from ottla.browse.control_api import call
from ottla.console.query import Query
from ottla.console.state import ConsoleState, page_of
from ottla.errors import InputError

_BROKERS: Final = ("kill", "stop", "start", "pause", "resume")
_LINKS: Final = ("cut", "slow", "isolate", "heal")
_DISKS: Final = ("full", "slow", "fsync-error", "torn-write", "offline", "heal")
_SHORT_S: Final = 15.0


def state(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return brokers, a page of partitions, faults, links and disks, from the control API."""
    page, size = query.paging()
    query.done()
    control = _control(console)
    found = {
        name: call(control, "GET", f"/{name}", timeout_s=_SHORT_S) for name in ("cluster", "faults", "links", "disks")
    }
    partitions = found["cluster"].pop("partitions")
    return {
        "schema": "ottla.console.embedded/1",
        "cluster": found["cluster"],
        "partitions": page_of(partitions, page=page, size=size),
        "faults": found["faults"]["faults"],
        "links": found["links"]["links"],
        "disks": found["disks"]["disks"],
    }


def explain(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Explain the state of a partition."""
    topic = query.needed("topic")
    partition = query.number("partition", 0, least=0, most=2**31 - 1)
    query.done()
    asked = {"topic": topic, "partition": partition}
    return {
        "schema": "ottla.console.explain/1",
        **call(_control(console), "GET", "/explain", query=asked, timeout_s=_SHORT_S),
    }


def act(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Do one thing: `on` brokers, links, disks, clock or faults. What it takes is what the control API takes."""
    on = query.one_of("on", ("brokers", "links", "disks", "clock", "faults"), "")
    action = query.text("action", "", most=40) or ""
    node = query.number("node", None, least=0, most=2**31 - 1)
    body = query.anything("body")
    query.done()
    body = {} if body is None else body
    if not isinstance(body, dict):
        raise InputError("body: wanted an object")
    method, path = _target(on, action, node)
    console.audit(f"embedded.{on}.{action or 'add'}", str(node if node is not None else ""), after=body)
    return {"schema": "ottla.console.acted/1", "answer": call(_control(console), method, path, body)}


def _target(on: str, action: str, node: int | None) -> tuple[str, str]:
    if on == "faults":
        if action == "clear":
            return "DELETE", "/faults"
        if action == "remove" and node is not None:
            return "DELETE", f"/faults/{node}"
        if action == "release" and node is not None:
            return "POST", f"/faults/{node}/release"
        if action == "":
            return "POST", "/faults"
        raise InputError(f"action: found {action!r}, wanted remove, release, clear, or none to add a fault")
    known = {"brokers": _BROKERS, "links": _LINKS, "disks": _DISKS, "clock": ("advance",)}[on]
    if action not in known:
        raise InputError(f"action: found {action!r}, wanted one of {', '.join(known)}")
    if on != "brokers":
        return "POST", f"/{on}/{action}"
    if node is None:
        raise InputError("node: found none, wanted a broker's id")
    return "POST", f"/brokers/{node}/{action}"


def _control(console: ConsoleState) -> str:
    control = console.choices.control
    if control is None:
        raise InputError("this is not an embedded broker, or the console was started without --control URL")
    return control
