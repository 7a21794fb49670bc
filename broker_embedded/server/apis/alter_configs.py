"""AlterConfigs (key 33), versions 0-2: replaces all settings of a resource; what is not named returns to its default.

Superseded by IncrementalAlterConfigs. Topics, brokers and groups only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.controller.requests import ConfigOperation
from broker_embedded.server.handling.config_changes import change_configs, refuse_all, refuse_unknown_dirs
from broker_embedded.server.requests.context import RequestContext, Response
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasController

on_error = refuse_all
check_here = refuse_unknown_dirs


def handle(ctx: RequestContext[HasController], request: Message) -> Response:
    operations = [
        [(config.name, ConfigOperation.SET, config.value) for config in resource.configs]
        for resource in request.resources
    ]
    return change_configs(ctx, request, operations, replaces_all=True)
