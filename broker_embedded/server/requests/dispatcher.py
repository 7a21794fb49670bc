"""Turns a request frame into the parts of its response.

Finds the API in the table, checks the version, decodes, calls the handler, encodes. What a handler raises ends here: a
`BrokerError` becomes the API's error response, anything else is a bug, logged with its traceback and answered with
UNKNOWN_SERVER_ERROR. Bytes that are no request close the connection, as Kafka does: there is nothing one could answer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Deferred, Promise, pipe
from broker_embedded.server.requests import slices
from broker_embedded.server.requests.context import Body, Handler, RequestContext
from broker_embedded.server.requests.registry import TABLE, Api
from ottla_wire.protocol import ApiKey, ErrorCode, ProtocolError, codec, headers, schemas
from ottla_wire.protocol.message import Message
from ottla_wire.protocol.region import Part

if TYPE_CHECKING:
    from broker_embedded.server.net.connection import ClientConnection
    from broker_embedded.server.requests.services import Authorizes, Quotas, Services

    class HandlerAuthorization(Authorizes, Protocol):
        """Wraps handlers with the authorizer."""

        def around(self, api: Api, handler: Handler) -> Handler: ...

    class MeasuringQuotas(Quotas, Protocol):
        """Wraps handlers with quotas."""

        def around(self, api: Api, handler: Handler, *, size: int) -> Handler: ...

    class DispatchedServices(Services, Protocol):
        """Services of the handlers, and the layers around them."""

        @property
        def authorization(self) -> HandlerAuthorization | None: ...

        @property
        def quotas(self) -> MeasuringQuotas | None: ...


log = logging.getLogger(__name__)

Parts = list[Part]

MANY_ELEMENTS_BYTES = 200
"""A smaller request has too few elements to be cut into slices."""
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RequestDispatcher:
    """Answers the requests of one broker."""

    def __init__(self, services: DispatchedServices) -> None:
        self._services = services
        self._table = TABLE
        self.tallies: dict[int, list[int]] = {key: [0, 0] for key in TABLE}
        """Key of an API → its requests so far, and their bytes."""

    def dispatch(self, connection: ClientConnection, frame: memoryview) -> Parts | Promise[Parts | None] | None:
        """Return the response's parts, a promise of them, or None without a response."""
        try:
            header = headers.decode_request_header(frame)
        except ProtocolError as error:
            self._refuse(connection, f"not a request: {error}")
            return None
        version = header.api_version
        api = self._table.get(header.api_key)
        if api is None:
            self._refuse(connection, f"API key {header.api_key} is not served")
            return None
        if not api.min_version <= version <= api.max_version:
            return self._unsupported(connection, api, header)
        tally = self.tallies[header.api_key]
        tally[0] += 1
        tally[1] += len(frame)
        try:
            request = codec.decode_request(api.key, version, frame, header.body_offset)
        except ProtocolError as error:
            self._refuse(connection, str(error))
            return None
        services = self._services
        context = RequestContext(services, connection, version, header.correlation_id, header.client_id)
        try:
            handler = api.handler
            if services.faults.is_armed:
                handler = services.faults.around(api, handler)
            if services.authorization is not None:
                handler = services.authorization.around(api, handler)
            if len(frame) > MANY_ELEMENTS_BYTES:
                handler = slices.around(api, handler, request)
            if services.quotas is not None:
                handler = services.quotas.around(api, handler, size=len(frame))
            answer = handler(context, request)
        except Exception as error:
            answer = self._failure(connection, api, version, request, error)
        if answer is None:
            return None
        if isinstance(answer, (dict, bytes)):
            return self._encode(connection, api, version, header.correlation_id, answer)
        return self._later(connection, api, version, header.correlation_id, request, answer)

    def refuse(self, frame: memoryview, error: BrokerError) -> Parts | None:
        """Return the error response to a request without a handler; None without one."""
        try:
            header = headers.decode_request_header(frame)
            api, version = self._table[header.api_key], header.api_version
            request = codec.decode_request(api.key, version, frame, header.body_offset)
        except (ProtocolError, KeyError):
            return None
        body = error_body(api, version, request, error)
        return None if body is None else headers.encode_response_frame(api.key, version, header.correlation_id, body)

    def _later(
        self,
        connection: ClientConnection,
        api: Api,
        version: int,
        correlation_id: int,
        request: Message,
        answer: Deferred[Body],
    ) -> Promise[Parts | None]:
        """Encode a deferred response. If the client disconnects the handler's future is cancelled."""
        encoded: Promise[Parts | None] = Promise()

        def encode(body: Body | None) -> Parts | None:
            return None if body is None else self._encode(connection, api, version, correlation_id, body)

        def encode_failure(error: BaseException) -> Parts | None:
            return encode(self._failure(connection, api, version, request, error))

        pipe(encoded, answer, encode, recover=encode_failure)
        return encoded

    def _encode(
        self, connection: ClientConnection, api: Api, version: int, correlation_id: int, body: Body | bytes
    ) -> Parts | None:
        """Return the response; a body that cannot be encoded is a bug, and ends the connection."""
        try:
            return headers.encode_response_frame(api.key, version, correlation_id, body)
        except Exception:
            log.exception("%s v%d: the response cannot be encoded", api.key.name, version)
            connection.close()
            return None

    def _failure(
        self, connection: ClientConnection, api: Api, version: int, request: Message, error: BaseException
    ) -> Body | None:
        if not isinstance(error, BrokerError):
            connection.log_limited(
                logging.ERROR,
                "%s v%d from %s failed",
                api.key.name,
                version,
                connection.client_host,
                exc_info=error,
            )
            error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; its log has the reason")
        body = error_body(api, version, request, error)
        if body is None:
            connection.close()
        return body

    def _unsupported(self, connection: ClientConnection, api: Api, header: Any) -> Parts | None:
        """Answer an unknown ApiVersions version in v0 with error 35, so that the client can choose again (KIP-511)."""
        if header.api_key == _API_VERSIONS:
            body = api_versions_body(ErrorCode.UNSUPPORTED_VERSION)
            return headers.encode_response_frame(ApiKey.API_VERSIONS, 0, header.correlation_id, body)
        self._refuse(
            connection,
            f"{api.key.name} version {header.api_version} is not served, {api.min_version} to {api.max_version} are",
        )
        return None

    def _refuse(self, connection: ClientConnection, reason: str) -> None:
        connection.log_limited(logging.WARNING, "closed the connection from %s: %s", connection.client_host, reason)
        connection.abort()


def api_versions_body(error: ErrorCode = ErrorCode.NONE) -> Body:
    """Return the served APIs for ApiVersions."""
    return {
        "error_code": int(error),
        "api_keys": [
            {"api_key": key, "min_version": entry.listed_from, "max_version": entry.max_version}
            for key, entry in sorted(TABLE.items())
        ],
    }


def error_body(api: Api, version: int, request: Message, error: BrokerError) -> Body | None:
    """Return the API's error response: its own shape, or `error_code` and `error_message` at the top level; None if it
    has neither."""
    if api.on_error is not None:
        return api.on_error(request, version, error)
    fields = {member.name for member in schemas.response(api.key).struct.fields_of(version)}
    if "error_code" not in fields:
        return None
    body: Body = {"error_code": int(error.code)}
    if "error_message" in fields:
        body["error_message"] = error.message or None
    return body
