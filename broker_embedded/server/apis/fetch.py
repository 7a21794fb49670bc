"""Fetch (key 1), versions 4-18, from consumers and from followers.

Answers at once when there are min_bytes to read, when a partition has an error, or when max_wait_ms is 0; otherwise it
waits in the purgatory until appends have brought the bytes, and is woken by the append itself. The response is built at
that moment. At least one whole batch is returned even if it is larger than every limit. Sessions (KIP-227) send only
what changed. The response tells a follower where its log diverges (KIP-595). Bytes are returned as stored: a fetch from
the middle of a batch returns the whole batch.

A follower reads up to the log end. Its fetch offset shows what it has, which advances the high watermark. Consumers
that know racks (version 11) may read from followers as well, up to the high watermark known there; with a
`replica.selector.class` the leader names the replica (KIP-392). Requests for the metadata log go to the quorum. Not
done: tiered storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.server.fetch.follower import FollowerFetch
from broker_embedded.server.fetch.operation import Fetch
from broker_embedded.server.fetch.request import is_for_metadata_log, replica_of, session_and_partitions
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.fetch.operation import FetchNeeds
    from broker_embedded.server.requests.services import HasQuorum

    class Needs(FetchNeeds, HasQuorum, Protocol): ...


def on_error(request: Message, version: int, error: BrokerError) -> Body:
    return {"error_code": int(error.code), "responses": []}


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    if is_for_metadata_log(request, ctx.api_version):
        return ctx.services.quorum.handle_fetch(request)
    version = ctx.api_version
    replica, broker_epoch = replica_of(request, version)
    follows = replica >= 0
    session, wanted = session_and_partitions(ctx.services.fetch_sessions, request, version, follows=follows)
    if not follows:
        fetch = Fetch(ctx, request, session, wanted)
    else:
        fetch = FollowerFetch(ctx, request, session, wanted, replica=replica, broker_epoch=broker_epoch)
    fetch.read()
    if fetch.must_answer_now or request.max_wait_ms <= 0 or fetch.reads_nothing:
        return fetch.answer()
    return fetch.wait()
