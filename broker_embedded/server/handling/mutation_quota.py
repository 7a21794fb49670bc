"""The quota of changes of topics, for the handlers that make them on the controller's node."""

from __future__ import annotations

from broker_embedded.quotas.mutations import UNLIMITED, MutationQuota
from broker_embedded.server.requests.registry import RequestContext


def mutation_quota(ctx: RequestContext, *, strict_from: int) -> MutationQuota:
    """`strict_from`: clients know THROTTLING_QUOTA_EXCEEDED since this version."""
    quotas = ctx.broker.quotas
    return UNLIMITED if quotas is None else quotas.mutations(ctx, is_strict=ctx.api_version >= strict_from)
