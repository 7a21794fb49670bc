"""ApiVersions (key 18), versions 0-5.

Lists what is bound in the table of `server.requests.registry`, nothing else, and from version 3 the features that the
cluster has finalized (KIP-584): clients read `transaction.version` there. Client software names are checked against
KIP-511's pattern. From version 5 a client names the broker that it means to reach: another broker refuses it with
REBOOTSTRAP_REQUIRED, and the client looks its brokers up again (KIP-1242). An unknown version is answered by the
dispatcher, in version 0 with UNSUPPORTED_VERSION. Encoded once per version, until a feature changes: clients ask at
every connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.features import SUPPORTED
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.server.requests.context import Body, RequestContext, Response
from broker_embedded.server.requests.dispatcher import api_versions_body
from ottla_wire.protocol import ApiKey, ErrorCode, codec
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasMetadata, HasNodeId

    class Needs(HasNodeId, HasMetadata, Protocol): ...


FIRST_WITH_LEVEL_0 = 4
"""Clients that know version 3 only cannot read a feature whose lowest level is 0 (KAFKA-17011)."""

FIRST_WITH_DESTINATION = 5

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_encoded: WeakKeyDictionary[Needs, dict[int, tuple[Mapping[str, int], bytes]]] = WeakKeyDictionary()


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    version = ctx.api_version
    if version >= 3:
        name, software = request.client_software_name, request.client_software_version
        if _SOFTWARE.fullmatch(name) is None or _SOFTWARE.fullmatch(software) is None:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"found client software {name!r} {software!r}")
    if version >= FIRST_WITH_DESTINATION:
        _check_destination(ctx, request)
    if ctx.connection.authenticator is not None:
        ctx.connection.authenticator.on_api_versions()
    image = ctx.services.metadata.image
    per_version = _encoded.setdefault(ctx.services, {})
    known = per_version.get(version)
    if known is not None and known[0] is image.features:
        return known[1]
    response = codec.encode_response(ApiKey.API_VERSIONS, version, {**api_versions_body(), **_features(image, version)})
    per_version[version] = (image.features, response)
    return response


def _check_destination(ctx: RequestContext[Needs], request: Message) -> None:
    cluster_id, node_id = request.cluster_id, request.node_id
    if cluster_id is None and node_id < 0:
        return
    if cluster_id is None or node_id < 0:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"cluster id {cluster_id} and node id {node_id}, wanted both or neither"
        )
    own = (ctx.services.metadata.image.cluster_id, ctx.services.node_id)
    if (cluster_id, node_id) != own:
        raise BrokerError(
            ErrorCode.REBOOTSTRAP_REQUIRED,
            f"this is node {own[1]} of cluster {own[0]}, the client means to reach node {node_id} of {cluster_id}",
        )


def _features(image: ClusterImage, version: int) -> Body:
    lowest = 0 if version >= FIRST_WITH_LEVEL_0 else 1
    return {
        "supported_features": [
            {"name": each.name, "min_version": max(each.min_level, lowest), "max_version": each.max_level}
            for each in SUPPORTED
        ],
        "finalized_features_epoch": image.offset,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in sorted(image.features.items())
            if level
        ],
    }
