"""One cluster of three brokers for a file's tests, and both ways to ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, AsyncAdmin

_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


@pytest.fixture
def name() -> str:
    """A topic or group that no other test has."""
    return f"admin-{next(_numbers)}"


@pytest.fixture(params=["threads", "asyncio"])
def ask(request: pytest.FixtureRequest, cluster: EmbeddedCluster, admin: Admin) -> Callable[..., Any]:
    """`ask("list_topics", ...)`: a method of `Admin`, and of `AsyncAdmin`."""

    def with_threads(method: str, *args: Any, **options: Any) -> Any:
        return getattr(admin, method)(*args, **options)

    def on_asyncio(method: str, *args: Any, **options: Any) -> Any:
        async def asked() -> Any:
            async with AsyncAdmin(cluster.bootstrap_servers, timeout_s=20) as made:
                return await getattr(made, method)(*args, **options)

        return asyncio.run(asked())

    return with_threads if request.param == "threads" else on_asyncio
