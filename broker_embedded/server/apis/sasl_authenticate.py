"""SaslAuthenticate (key 36), versions 0-2: one step of the mechanism that SaslHandshake has chosen.

A wrong password is answered with SASL_AUTHENTICATION_FAILED, and the connection closed; Kafka waits for
connection.failed.authentication.delay.ms before it does either. The last step returns the session lifetime (KIP-368): 0
for no limit; otherwise the client has to re-authenticate within that time.
"""

from __future__ import annotations

from broker_embedded.common.errors import BrokerError
from broker_embedded.security.authenticator import out_of_turn
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message


def handle(ctx: RequestContext[object], request: Message) -> Response:
    authenticator = ctx.connection.authenticator
    try:
        if authenticator is None:
            raise out_of_turn()
        answer = authenticator.authenticate(bytes(request.auth_bytes))
    except BrokerError as error:
        return {"error_code": int(error.code), "error_message": error.message, "auth_bytes": b""}
    return {
        "error_code": 0,
        "error_message": None,
        "auth_bytes": answer,
        "session_lifetime_ms": authenticator.session_ms if authenticator.is_complete else 0,
    }
