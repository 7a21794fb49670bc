"""Requests with very many elements are handled a slice at a time, and the loop serves others in between.

One request may name tens of thousands of groups, topics or users. A handler that answers them in one go would hold up
every broker of the process for as long. So what a request asks for is cut into slices of a few hundred elements; each
is handled as a request of its own in a turn of the loop, and its results are encoded at once. The
response has them all.

    elements that have one key   stay in one slice, so that a handler finds what is named twice
    a topic of many partitions   is cut by its partitions, where `nested` says so, and its results are put together
    an error of a whole slice    ends the request, which is answered with it; what the slices before it did is done
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from broker_embedded.common.promises import Promise, is_deferred
from ottla_wire.protocol import ApiKey, codec, schemas
from ottla_wire.protocol.message import Message
from ottla_wire.protocol.primitives import encode_uvarint

if TYPE_CHECKING:
    from broker_embedded.server.requests.context import Body, Handler, RequestContext, Response
    from broker_embedded.server.requests.registry import Api
    from broker_embedded.server.requests.services import Services

SLICE = 250
"""Elements of a slice. The dearest cost about 0.1 ms each: a new topic, a changed setting, a credential."""

Piece = tuple[str, Any]
"""An element, and the array of the request that has it."""


class Sliced(NamedTuple):
    """How the requests of an API are cut: the arrays, and where the results are, which is the response's last field."""

    arrays: tuple[str, ...]
    results: str
    key: Callable[[Any], object] | None = None
    nested: tuple[str, str] | None = None
    """The array within an element that may be cut as well, and the array of its results."""
    size: int = SLICE


def _name(element: Message) -> object:
    return element.name


def _resource(element: Message) -> object:
    return element.resource_type, element.resource_name


def _topic(element: Message) -> object:
    return element.name, bytes(element.topic_id)


def _entity(element: Message) -> object:
    return tuple(sorted({each.entity_type: each.entity_name or "" for each in element.entity}.items()))


_PARTITIONS = ("partitions", "partitions")

SLICED = {
    ApiKey.LIST_OFFSETS: Sliced(("topics",), "topics", nested=_PARTITIONS),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Sliced(("topics",), "topics", nested=_PARTITIONS),
    ApiKey.OFFSET_FETCH: Sliced(("groups",), "groups"),
    ApiKey.FIND_COORDINATOR: Sliced(("coordinator_keys",), "coordinators"),
    ApiKey.DESCRIBE_GROUPS: Sliced(("groups",), "groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Sliced(("group_ids",), "groups"),
    ApiKey.SHARE_GROUP_DESCRIBE: Sliced(("group_ids",), "groups"),
    ApiKey.DELETE_GROUPS: Sliced(("groups_names",), "results"),
    ApiKey.CREATE_TOPICS: Sliced(("topics",), "topics", key=_name),
    ApiKey.DELETE_TOPICS: Sliced(("topics",), "responses", key=_topic),
    ApiKey.DELETE_RECORDS: Sliced(("topics",), "topics", nested=_PARTITIONS),
    ApiKey.CREATE_PARTITIONS: Sliced(("topics",), "results", key=_name),
    ApiKey.ADD_PARTITIONS_TO_TXN: Sliced(("transactions",), "results_by_transaction"),
    ApiKey.WRITE_TXN_MARKERS: Sliced(("markers",), "markers"),
    ApiKey.DESCRIBE_PRODUCERS: Sliced(("topics",), "topics", nested=("partition_indexes", "partitions")),
    ApiKey.DESCRIBE_TRANSACTIONS: Sliced(("transactional_ids",), "transaction_states"),
    ApiKey.CREATE_ACLS: Sliced(("creations",), "results"),
    ApiKey.DELETE_ACLS: Sliced(("filters",), "filter_results"),
    ApiKey.DESCRIBE_CONFIGS: Sliced(("resources",), "results", size=10),  # about 2 ms each
    ApiKey.ALTER_CONFIGS: Sliced(("resources",), "responses", key=_resource),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Sliced(("resources",), "responses", key=_resource),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Sliced(("dirs",), "results"),
    ApiKey.ELECT_LEADERS: Sliced(
        ("topic_partitions",), "replica_election_results", nested=("partitions", "partition_result")
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Sliced(("topics",), "responses", nested=_PARTITIONS),
    ApiKey.ALTER_CLIENT_QUOTAS: Sliced(("entries",), "entries", key=_entity),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Sliced(("users",), "results", key=_name),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Sliced(("deletions", "upsertions"), "results", key=_name),
}


def around(api: Api, handler: Handler, request: Message) -> Handler:
    """Return the handler for this request: itself, or one that handles the request in slices."""
    sliced = SLICED.get(api.key)
    if sliced is None:
        return handler
    pieces = [(array, each) for array in sliced.arrays for each in getattr(request, array) or ()]
    nested = sliced.nested[0] if sliced.nested else None
    if len(pieces) + (sum(len(getattr(each, nested) or ()) for _, each in pieces) if nested else 0) <= sliced.size:
        return handler
    return lambda ctx, whole: _SlicedRequest(api, handler, ctx, whole, sliced, pieces).answer()


class _SlicedRequest:
    """One request on its way through its handler."""

    def __init__(
        self,
        api: Api,
        handler: Handler,
        ctx: RequestContext[Services],
        request: Message,
        sliced: Sliced,
        pieces: list[Piece],
    ) -> None:
        self._api, self._handler, self._ctx, self._request, self._sliced = api, handler, ctx, request, sliced
        self._slices = _cut(pieces, sliced)
        self._promise: Promise[Any] = Promise()
        self._head: Body | None = None
        self._encoded: list[bytes] = []
        self._count = 0
        self._open: Body | None = None
        """The results of the last topic, while more of its partitions are to be handled."""

    def answer(self) -> Response:
        self._next()
        return self._promise

    def _next(self) -> None:
        """Handle one slice; the next one comes in another turn of the loop."""
        promise = self._promise
        if promise.done():  # the client has gone
            return
        pieces = next(self._slices, None)
        try:
            if pieces is None:
                promise.set_result(self._joined())
                return
            answer = self._handler(self._ctx, self._part(pieces))
        except Exception as error:
            promise.set_exception(error)
            return
        if is_deferred(answer):
            answer.add_done_callback(self._on_answer)
        else:
            self._take(cast("Body | bytes | None", answer))

    def _part(self, pieces: Sequence[Piece]) -> Message:
        part = copy.copy(self._request)
        for array in self._sliced.arrays:
            setattr(part, array, [element for of, element in pieces if of == array])
        return part

    def _on_answer(self, finished: Any) -> None:
        if self._promise.done():
            return
        if finished.cancelled():
            self._promise.cancel()
        elif (error := finished.exception()) is not None:
            self._promise.set_exception(error)
        else:
            self._take(finished.result())

    def _take(self, answer: Body | bytes | None) -> None:
        """Keep the results of a slice. One that is refused as a whole is the answer to the request."""
        key, version = self._api.key, self._ctx.api_version
        if isinstance(answer, bytes):  # by another broker
            answer = codec.decode_response(key, version, answer).to_dict()
        if answer is None or answer.get("error_code"):
            self._promise.set_result(answer)
            return
        try:
            self._keep(answer)
        except Exception as error:
            self._promise.set_exception(error)
            return
        try:
            asyncio.get_running_loop().call_soon(self._next)
        except RuntimeError:  # no loop runs, so no other request waits
            self._next()

    def _keep(self, answer: Body) -> None:
        results = list(answer[self._sliced.results])
        if self._head is None:
            self._head = {**answer, self._sliced.results: []}
        elif "throttle_time_ms" in self._head:
            self._head["throttle_time_ms"] = max(self._head["throttle_time_ms"], answer.get("throttle_time_ms", 0))
        if self._sliced.nested is not None and len(results) == 1:
            self._put_together(results[0])
            return
        self._close()
        self._encode(results)

    def _put_together(self, result: Body) -> None:
        assert self._sliced.nested is not None
        nested = self._sliced.nested[1]
        is_same = self._open is not None and _without(self._open, nested) == _without(result, nested)
        if self._open is not None and is_same:
            self._open[nested].extend(result[nested])
        else:
            self._close()
            self._open = {**result, nested: list(result[nested])}

    def _close(self) -> None:
        closed, self._open = self._open, None
        if closed is not None:
            self._encode([closed])

    def _encode(self, results: list[Body]) -> None:
        """Encode the elements alone: what comes before and behind them in the response is cut off."""
        assert self._head is not None
        key, version = self._api.key, self._ctx.api_version
        whole = codec.encode_response(key, version, {**self._head, self._sliced.results: results})
        before, behind = self._around(self._head)
        count = len(_length(len(results), is_flexible=bool(behind)))
        self._encoded.append(whole[len(before) + count : len(whole) - len(behind)])
        self._count += len(results)

    def _joined(self) -> bytes:
        self._close()
        assert self._head is not None
        before, behind = self._around(self._head)
        return b"".join([before, _length(self._count, is_flexible=bool(behind)), *self._encoded, behind])

    def _around(self, head: Body) -> tuple[bytes, bytes]:
        """Return the response's bytes before the array of results, and those after it: the empty tags."""
        key, version = self._api.key, self._ctx.api_version
        behind = b"\0" if schemas.response(key).is_flexible(version) else b""
        empty = codec.encode_response(key, version, head)
        return empty[: len(empty) - len(behind) - len(_length(0, is_flexible=bool(behind)))], behind


def _cut(pieces: list[Piece], sliced: Sliced) -> Iterator[list[Piece]]:
    """Yield slices of about the same size. Elements with one key are in the first one, together."""
    if sliced.key is not None:
        counts = Counter(sliced.key(each) for _, each in pieces)
        repeated = [piece for piece in pieces if counts[sliced.key(piece[1])] > 1]
        if repeated:
            yield repeated
            pieces = [piece for piece in pieces if counts[sliced.key(piece[1])] == 1]
    if sliced.nested is None:
        size = -(-len(pieces) // max(1, -(-len(pieces) // sliced.size)))
        for start in range(0, len(pieces), max(1, size)):
            yield pieces[start : start + size]
        return
    collected: list[Piece] = []
    weight = 0
    for array, element in pieces:
        inner = list(getattr(element, sliced.nested[0]) or ())
        if collected and (weight + 1 + len(inner) > sliced.size):
            yield collected
            collected, weight = [], 0
        if len(inner) < sliced.size:
            collected.append((array, element))
            weight += 1 + len(inner)
            continue
        for start in range(0, len(inner), sliced.size):
            part = copy.copy(element)
            setattr(part, sliced.nested[0], inner[start : start + sliced.size])
            yield [(array, part)]
    if collected:
        yield collected


def _length(count: int, *, is_flexible: bool) -> bytes:
    return encode_uvarint(count + 1) if is_flexible else count.to_bytes(4, "big")


def _without(result: Body, name: str) -> Body:
    return {key: value for key, value in result.items() if key != name}
