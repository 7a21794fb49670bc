"""ApiVersions (key 18), versions 0-4.

Lists what is bound in the table of `server.registry`, nothing else. Client software names are checked against KIP-511's
pattern. An unknown version is answered by the dispatcher, in version 0 with UNSUPPORTED_VERSION. Encoded once per
version: clients ask at every connection. Not done: finalized features (there is nothing to negotiate yet).
"""

from __future__ import annotations

import re
from functools import cache

from broker_embedded.common.errors import BrokerError
from broker_embedded.server.dispatcher import api_versions_body
from broker_embedded.server.registry import RequestContext, Response, api
from ottla_wire.protocol import ApiKey, ErrorCode, codec
from ottla_wire.protocol.message import Message

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@api(ApiKey.API_VERSIONS, versions=(0, 4))
def handle(ctx: RequestContext, request: Message) -> Response:
    if ctx.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if _SOFTWARE.fullmatch(name) is None or _SOFTWARE.fullmatch(version) is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"found client software {name!r} {version!r}")
        ctx.connection.client_software = (name, version)
    return _encoded(ctx.api_version)


@cache
def _encoded(version: int) -> bytes:
    return codec.encode_response(ApiKey.API_VERSIONS, version, api_versions_body())
