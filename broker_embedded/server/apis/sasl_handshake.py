"""SaslHandshake (key 17), versions 0-1: the client chooses a mechanism.

For a mechanism that is not enabled, the response lists the enabled ones, and the connection is closed. After version 0
tokens are sent without a header, after version 1 in SaslAuthenticate. On a listener without SASL, or for a second
handshake while sessions do not expire (connections.max.reauth.ms), the response is ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from broker_embedded.common.errors import BrokerError
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext[object], request: Message) -> Response:
    authenticator = ctx.connection.authenticator
    if authenticator is None:
        return {"error_code": int(ErrorCode.ILLEGAL_SASL_STATE), "mechanisms": []}
    try:
        authenticator.shake_hands(request.mechanism, version=ctx.api_version)
    except BrokerError as error:
        known = authenticator.mechanisms if error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM else []
        return {"error_code": int(error.code), "mechanisms": known}
    return {"error_code": 0, "mechanisms": authenticator.mechanisms}
