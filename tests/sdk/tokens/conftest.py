from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.clock import ManualClock
from ottla.testing.oidc import OidcEndpoint, oidc_endpoint
from ottla.tokens.shared import forget_sources


@pytest.fixture(autouse=True)
def _sources_of_this_test() -> Iterator[None]:
    """A source outlives its clients, and tries again and again to renew what a test lets fail."""
    yield
    forget_sources()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def endpoint(clock: ManualClock) -> Iterator[OidcEndpoint]:
    pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")
    with oidc_endpoint(clock=clock) as running:
        yield running
