"""The quota of changes of topics, for the handlers that make them on the controller's node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.quotas.mutations import UNLIMITED, MutationQuota
from broker_embedded.server.requests.context import RequestContext

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasQuotas


def mutation_quota(ctx: RequestContext[HasQuotas], *, strict_from: int) -> MutationQuota:
    """Count mutations against the quota. `strict_from`: the version since which clients know
    THROTTLING_QUOTA_EXCEEDED."""
    quotas = ctx.services.quotas
    return (
        UNLIMITED
        if quotas is None
        else quotas.mutations(ctx.connection, ctx.client_id, is_strict=ctx.api_version >= strict_from)
    )
