"""UpdateFeatures (key 57), versions 0-2: finalize feature levels, all of a request or none.

Levels are checked against this software, every registered broker, and whether the request allows a downgrade. Nothing
in this broker depends on metadata.version and group.version; transaction.version is what clients read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import map_result
from broker_embedded.controller.features import FeatureUpdate, UpgradeType
from broker_embedded.server.requests.context import Body, RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    counts = Counter(each.feature for each in request.feature_updates)
    if not counts or max(counts.values()) > 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "a request names one feature or more, and each of them once")
    updates = [_update(each, ctx.api_version) for each in request.feature_updates]

    def answer(_: None) -> Body:
        return {
            "error_code": 0,
            "error_message": None,
            "results": [{"feature": each.name, "error_code": 0, "error_message": None} for each in updates],
        }

    return map_result(
        ctx.services.controller.update_features(updates, validate_only=bool(request.validate_only)), answer
    )


def _update(wanted: Message, version: int) -> FeatureUpdate:
    if version == 0:
        upgrade_type = UpgradeType.SAFE_DOWNGRADE if wanted.allow_downgrade else UpgradeType.UPGRADE
    else:
        try:
            upgrade_type = UpgradeType(wanted.upgrade_type)
        except ValueError:
            raise BrokerError(
                ErrorCode.INVALID_UPDATE_VERSION, f"upgrade type: found {wanted.upgrade_type}, wanted 1 to 3"
            ) from None
    return FeatureUpdate(name=wanted.feature, level=wanted.max_version_level, upgrade_type=upgrade_type)
