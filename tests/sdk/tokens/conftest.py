from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.clock import ManualClock
from ottla.testing.oidc import OidcEndpoint, oidc_endpoint


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def endpoint(clock: ManualClock) -> Iterator[OidcEndpoint]:
    pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")
    with oidc_endpoint(clock=clock) as running:
        yield running
