"""Routes of the control API: they decode and check requests, and call `LocalControl`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from broker_embedded.cluster.control.http import LARGEST, HttpError, HttpRequest
from broker_embedded.cluster.control.waits import DEFAULT_TIMEOUT_MS, NotMet, WantedState, wait_for
from broker_embedded.cluster.explain import explain
from broker_embedded.cluster.faults import BadDisk
from broker_embedded.cluster.faults.from_json import add_from_json
from broker_embedded.cluster.faults.selector import InvalidFault
from broker_embedded.cluster.metrics import metrics_text

if TYPE_CHECKING:
    from broker_embedded.cluster.control.local import LocalControl

V = TypeVar("V")
Answer = tuple[HTTPStatus, Any]
Route = Callable[["LocalControl", HttpRequest], Awaitable[Answer]]

MAX_MS = 100 * 366 * 24 * 3_600_000
"""A century. A loop's timers take no time that is much longer."""

BROKER_ACTIONS = ("kill", "stop", "start", "pause", "resume")
LINK_ACTIONS = ("cut", "slow", "isolate", "heal")
DISK_ACTIONS = ("full", "limited", "slow", "fsync-error", "torn-write", "offline", "heal")


async def answer(control: LocalControl, request: HttpRequest) -> Answer:
    """Execute the request, or raise HttpError."""
    kind = request.path[0] if request.path else ""
    route = _ROUTES.get(kind)
    if route is None:
        raise _wrong(
            "path", kind, f"one of {_names(_ROUTES)}", list(_ROUTES), shown=f"/{kind}", status=HTTPStatus.NOT_FOUND
        )
    try:
        return await route(control, request)
    except InvalidFault as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from None
    except NotMet as error:
        raise HttpError(HTTPStatus.REQUEST_TIMEOUT, str(error), found=error.found, wanted=error.wanted) from None


# --- one function per first part of the path


async def _cluster(control: LocalControl, request: HttpRequest) -> Answer:
    _only(request, "GET", parts=1)
    return HTTPStatus.OK, control.facts().to_json()


async def _metrics(control: LocalControl, request: HttpRequest) -> Answer:
    _only(request, "GET", parts=1)
    return HTTPStatus.OK, metrics_text(control.facts(), control.figures())


async def _faults(control: LocalControl, request: HttpRequest) -> Answer:
    faults, path = control.faults, request.path
    if len(path) == 1:
        _only(request, "GET", "POST", "DELETE", parts=1)
        if request.method == "POST":
            return HTTPStatus.CREATED, add_from_json(faults, request.body).to_json()
        if request.method == "DELETE":
            faults.clear()
            return HTTPStatus.OK, {"faults": []}
        return HTTPStatus.OK, {"faults": [fault.to_json() for fault in faults.list()]}
    number = _number("fault", path[1])
    try:
        fault = faults.get(number)
    except InvalidFault as error:
        raise HttpError(HTTPStatus.NOT_FOUND, str(error), found=number) from None
    if path[2:] == ("release",):
        _only(request, "POST", parts=3)
        fault.release()
    else:
        _only(request, "GET", "DELETE", parts=2)
        if request.method == "DELETE":
            fault.remove()
    return HTTPStatus.OK, fault.to_json()


async def _brokers(control: LocalControl, request: HttpRequest) -> Answer:
    if len(request.path) == 1:
        _only(request, "POST", parts=1)
        _fields(request.body, "rack")
        added = await control.add_broker(rack=_text(request.body, "rack"))
        facts = control.facts().nodes[added]
        return HTTPStatus.CREATED, {"broker": added, "state": facts.state.value, "address": facts.address}
    _only(request, "POST", parts=3)
    node = _number("broker", request.path[1])
    nodes = sorted(control.facts().nodes)
    _one_of("broker", node, nodes)
    action = _one_of("action", request.path[2], BROKER_ACTIONS)
    _fields(request.body, *(["lose_unsynced"] if action == "kill" else []))
    actions: dict[str, Callable[[int], Awaitable[None]]] = {
        "kill": partial(control.kill_broker, lose_unsynced=_flag(request.body, "lose_unsynced")),
        "stop": control.stop_broker,
        "start": control.start_broker,
        "pause": control.pause_broker,
        "resume": control.resume_broker,
    }
    await actions[action](node)
    return HTTPStatus.OK, {"broker": node, "state": control.facts().nodes[node].state.value}


async def _links(control: LocalControl, request: HttpRequest) -> Answer:
    links, body = control.links, request.body
    if len(request.path) == 1:
        _only(request, "GET", parts=1)
        return HTTPStatus.OK, {"links": links.to_json()}
    _only(request, "POST", parts=2)
    action = _one_of("action", request.path[1], LINK_ACTIONS)
    if action == "cut":
        _fields(body, "a", "b", "one_way")
        links.cut(_needed(body, "a"), _needed(body, "b"), one_way=_flag(body, "one_way"))
    elif action == "slow":
        _fields(body, "a", "b", "delay_ms", "one_way")
        delay_ms = _needed(body, "delay_ms")
        links.slow(_needed(body, "a"), _needed(body, "b"), delay_ms=delay_ms, one_way=_flag(body, "one_way"))
    elif action == "isolate":
        _fields(body, "node")
        links.isolate(_needed(body, "node"))
    else:
        _fields(body, "a", "b")
        links.heal(_optional(body, "a"), _optional(body, "b"))
    return HTTPStatus.OK, {"links": links.to_json()}


async def _disks(control: LocalControl, request: HttpRequest) -> Answer:
    disks, body = control.disks, request.body
    if len(request.path) == 1:
        _only(request, "GET", parts=1)
        return HTTPStatus.OK, {"disks": disks.to_json()}
    _only(request, "POST", parts=2)
    action = _one_of("action", request.path[1], DISK_ACTIONS)
    if action == "heal":
        _fields(body, "broker")
        disks.heal(_optional(body, "broker"))
        return HTTPStatus.OK, {"disks": disks.to_json()}
    broker, directory, count = _needed(body, "broker"), _optional(body, "dir"), _optional(body, "count")
    added: BadDisk
    if action == "slow":
        _fields(body, "broker", "dir", "delay_ms")
        added = disks.slow(broker, delay_ms=_needed(body, "delay_ms"), dir=directory)
    elif action == "limited":
        _fields(body, "broker", "dir", "bytes")
        added = disks.limited(broker, limit_bytes=_needed(body, "bytes"), dir=directory)
    elif action == "fsync-error":
        _fields(body, "broker", "dir", "count")
        added = disks.fail_fsync(broker, count=count, dir=directory)
    elif action == "torn-write":
        _fields(body, "broker", "dir", "count")
        added = disks.tear_write(broker, count=1 if count is None else count, dir=directory)
    else:
        _fields(body, "broker", "dir")
        added = disks.full(broker, dir=directory) if action == "full" else disks.offline(broker, dir=directory)
    return HTTPStatus.CREATED, {"disks": [{"broker": added.node, **fault.to_json()} for fault in added.faults]}


async def _clock(control: LocalControl, request: HttpRequest) -> Answer:
    _only(request, "POST", parts=2)
    _one_of("action", request.path[1], ("advance",))
    _fields(request.body, "ms")
    ms = _needed(request.body, "ms")
    if ms < 0:
        raise _wrong("ms", ms, "0 or more")
    return HTTPStatus.OK, {"now_ms": await control.advance_clock(ms)}


async def _wait(control: LocalControl, request: HttpRequest) -> Answer:
    _only(request, "GET", parts=1)
    query = dict(request.query)
    timeout_ms = _number("timeout_ms", query.pop("timeout_ms", str(DEFAULT_TIMEOUT_MS)))
    given: dict[str, Any] = {}
    for name, value in query.items():
        if name in ("partition", "high_watermark", "members", "fault", "hits"):
            given[name] = _number(name, value)
        elif (name == "leader" and value in ("any", "none")) or (name == "controller" and value == "any"):
            given[name] = value
        elif name in ("leader", "controller"):
            given[name] = _number(name, value)
        elif name == "isr":
            given[name] = frozenset(_number(name, part) for part in value.split(",") if part)
        elif name in ("topic", "group", "state"):
            given[name] = value
        else:
            known = sorted([*WantedState.__slots__, "timeout_ms"])
            raise _wrong("query", name, f"some of {_names(known)}", known, shown=name)
    wanted = WantedState(**given)
    waited_ms = await wait_for(wanted, control.facts, control.faults, timeout_ms=timeout_ms)
    return HTTPStatus.OK, {"waited_ms": waited_ms}


async def _explain(control: LocalControl, request: HttpRequest) -> Answer:
    _only(request, "GET", parts=1)
    topic = request.query.get("topic")
    if not topic:
        raise _wrong("topic", None, "one", "topic", shown="none")
    partition = _number("partition", request.query.get("partition", "0"))
    asked = request.query.get("offset")
    offset = None if asked is None else _number("offset", asked)
    return HTTPStatus.OK, {
        "topic": topic,
        "partition": partition,
        "sentences": explain(control.facts(), topic, partition, offset=offset, group=request.query.get("group")),
    }


async def _shares(control: LocalControl, request: HttpRequest) -> Answer:
    _only(request, "GET", parts=1)
    group = request.query.get("group")
    return HTTPStatus.OK, {
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "leader": each.leader, **share.to_json()}
            for _, each in sorted(control.facts().partitions.items())
            for share in each.shares
            if group in (None, share.group)
        ]
    }


_ROUTES: dict[str, Route] = {
    "cluster": _cluster,
    "faults": _faults,
    "brokers": _brokers,
    "links": _links,
    "disks": _disks,
    "clock": _clock,
    "wait": _wait,
    "explain": _explain,
    "shares": _shares,
    "metrics": _metrics,
}


# --- checking


def _only(request: HttpRequest, *methods: str, parts: int) -> None:
    if len(request.path) != parts:
        path = "/" + "/".join(request.path)
        raise HttpError(HTTPStatus.NOT_FOUND, f"path: found {path}, wanted {parts} parts below /", found=path)
    if request.method not in methods:
        status, found = HTTPStatus.METHOD_NOT_ALLOWED, request.method
        raise _wrong("method", found, _names(methods), list(methods), shown=found, status=status)


def _one_of(what: str, found: V, wanted: Iterable[V]) -> V:
    if found not in wanted:
        text = f"one of {_names(wanted)}"
        raise _wrong(what, found, text, list(wanted), shown=str(found), status=HTTPStatus.NOT_FOUND)
    return found


def _fields(body: dict[str, Any], *known: str) -> None:
    unknown = sorted(set(body) - set(known))
    if unknown:
        raise _wrong("body", unknown, f"some of {_names(known)}", list(known), shown=_names(unknown))


def _needed(body: dict[str, Any], name: str) -> int:
    number = _optional(body, name)
    if number is None:
        raise _wrong(name, None, "a number", shown="none")
    return number


def _optional(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, value, "a number")
    return _bounded(name, value)


def _bounded(name: str, value: int) -> int:
    """Return the number if it is in range. An error does not repeat a number of a thousand digits."""
    is_time = name.endswith("ms")
    largest = MAX_MS if is_time else LARGEST
    if not -LARGEST <= value <= largest:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{name}: found more than {largest}, wanted less", wanted=largest)
    return value


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, str) or not 0 < len(value) < 256):
        raise _wrong(name, str(value)[:40], "a name")
    return value


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, value, "true or false", [True, False])
    return value


def _number(what: str, text: str) -> int:
    try:
        return _bounded(what, int(text[:40]))
    except ValueError:
        raise _wrong(what, text, "a number") from None


def _wrong(
    what: str,
    found: Any,
    text: str,
    wanted: Any = None,
    *,
    shown: str = "",
    status: HTTPStatus = HTTPStatus.BAD_REQUEST,
) -> HttpError:
    """Return the error of what was found. `text` says what was wanted, and is it if it cannot be listed."""
    message = f"{what}: found {shown or repr(found)}, wanted {text}"
    return HttpError(status, message, found=found, wanted=text if wanted is None else wanted)


def _names(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values)
