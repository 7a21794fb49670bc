"""The authorizer of one broker: kept in step with the metadata, and put before the handlers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.metadata.acls import CLUSTER_NAME, AclBinding, AclOperation, AclResource
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.security.authorizer import Authorizer, Rights
from broker_embedded.security.refusal import refusal
from broker_embedded.server.authorization.table import GUARDS
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.net.connection import ClientConnection
    from broker_embedded.server.requests.context import Handler, RequestContext, Response
    from broker_embedded.server.requests.registry import Api
    from broker_embedded.server.requests.services import Services

SUPER_USERS_SEPARATOR = ";"


class Authorization:
    """Decides by the ACLs that this broker's metadata has, from the moment that it has them."""

    def __init__(self, config: BrokerConfig) -> None:
        names = config.super_users.split(SUPER_USERS_SEPARATOR)
        self._super_users = frozenset(filter(None, map(str.strip, names)))
        self._allows_if_no_acl = config.allow_everyone_if_no_acl_found
        self._authorizer = self._authorizer_of(())

    def on_metadata(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Call it at every metadata change."""
        if image.acls is not delta.base.acls:
            self._authorizer = self._authorizer_of(image.acls.values())

    def _authorizer_of(self, acls: Iterable[AclBinding]) -> Authorizer:
        return Authorizer(acls, super_users=self._super_users, allows_if_no_acl=self._allows_if_no_acl)

    def rights_of(self, connection: ClientConnection) -> Rights | None:
        """Return a client's rights; None for another broker, which is not authorized here."""
        if connection.is_of_peer:
            return None
        return self._authorizer.rights_of(connection.principal, connection.client_host)

    def around(self, api: Api, handler: Handler) -> Handler:
        """Return the handler with its guard before it."""
        guard = GUARDS.get(api.key, _nobody)

        def guarded(ctx: RequestContext[Services], request: Message) -> Response:
            rights = self.rights_of(ctx.connection)
            return handler(ctx, request) if rights is None else guard(rights, ctx, request, handler)

        return guarded


def _nobody(rights: Rights, ctx: RequestContext[Services], request: Message, handler: Handler) -> Response:
    """Refuse an API that is missing in the table. A test keeps that from happening."""
    if not rights.is_super_user:
        raise refusal(rights, AclOperation.ALL, AclResource.CLUSTER, CLUSTER_NAME)
    return handler(ctx, request)
