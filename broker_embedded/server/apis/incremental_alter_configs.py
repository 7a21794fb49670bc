"""IncrementalAlterConfigs (key 44), versions 0-1: set, delete, append to or subtract from single settings.

Changes take effect at once, in the running logs too; a group's with the next heartbeat of a member. Not done: broker
loggers and client metrics are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.requests import ConfigOperation
from broker_embedded.server.handling.config_changes import change_configs, refuse_all, refuse_unknown_dirs
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController

on_error = refuse_all
check_here = refuse_unknown_dirs


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
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
