"""IncrementalAlterConfigs (key 44), versions 0-1: set, delete, append to or subtract from single settings.

Changes take effect at once, in the running logs too. Not done: broker loggers, client metrics and groups are refused.
"""

from __future__ import annotations

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.requests import ConfigOperation
from broker_embedded.server.config_changes import change_configs
from broker_embedded.server.registry import RequestContext, Response, api
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message


def on_error(request: Message, version: int, error: BrokerError) -> dict[str, object]:
    return {
        "responses": [
            {
                "error_code": int(error.code),
                "error_message": error.message,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
            }
            for resource in request.resources
        ]
    }


@api(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), on_error=on_error)
def handle(ctx: RequestContext, request: Message) -> Response:
    operations = [
        [(config.name, _operation(config.config_operation), config.value) for config in resource.configs]
        for resource in request.resources
    ]
    return change_configs(ctx, request, operations, replaces_all=False)


def _operation(number: int) -> ConfigOperation:
    try:
        return ConfigOperation(number)
    except ValueError:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"config operation: found {number}, wanted 0 (set) to 3 (subtract)"
        ) from None
