"""DescribeUserScramCredentials (key 50), version 0: mechanisms and iterations of users; all users if none is named.
Salts and keys are never returned."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker_embedded.metadata.records import UserScramCredential
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasMetadata


def handle(ctx: RequestContext[HasMetadata], request: Message) -> Response:
    kept: dict[str, list[UserScramCredential]] = {}
    for (name, _), credential in sorted(ctx.services.metadata.image.scram_credentials.items()):
        kept.setdefault(name, []).append(credential)
    times = Counter(each.name for each in request.users or ())
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "error_message": None,
        "results": [_result(name, kept.get(name, []), times[name]) for name in times or kept],
    }


def _result(name: str, credentials: list[UserScramCredential], times: int) -> Body:
    error, message = ErrorCode.NONE, None
    if times > 1:
        error = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not credentials:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return {
        "user": name,
        "error_code": int(error),
        "error_message": message,
        "credential_infos": []
        if error
        else [{"mechanism": int(each.mechanism), "iterations": each.iterations} for each in credentials],
    }
