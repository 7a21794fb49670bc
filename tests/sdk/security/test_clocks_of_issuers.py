"""A token's issuer, the broker and the client have clocks of their own: what each difference does, in every client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster, OAuthBearer, Security
from ottla import AsyncProducer, Producer
from ottla.admin import Admin, TopicSpec
from ottla.clock import SystemClock
from ottla.errors import AuthenticationError, BrokerUnavailable
from ottla.testing.oidc import OidcEndpoint
from ottla.tokens import Token
from ottla.tokens.shared import forget_sources

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")


class WrongClock(SystemClock):
    """The machine's clock, and some seconds more or less."""

    def __init__(self, ahead_s: int) -> None:
        self.ahead_s = ahead_s

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_s * 1000


@contextmanager
def kafka(*, skew_s: float, ahead_s: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Address and settings of a broker that allows some skew, whose tokens are issued by another clock."""
    with OidcEndpoint(audience="kafka", clock=WrongClock(ahead_s)) as endpoint:
        oauth = OAuthBearer(endpoint.jwks_url, issuer=endpoint.issuer, audience="kafka", clock_skew_s=skew_s)
        with EmbeddedCluster(security=Security("SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",), oauth=oauth)) as cluster:
            forget_sources()
            yield cluster.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT", **endpoint.settings()}
            forget_sources()


def settings_of_a_function(settings: dict[str, Any], *, life_s: float) -> dict[str, Any]:
    """Tokens by a function, which says when they expire by its own clock."""
    return {
        "security.protocol": settings["security.protocol"],
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token": lambda: Token(value="a.b.c", expires_at=time.time() + life_s),
    }


def administer(servers: str, settings: dict[str, Any]) -> None:
    with Admin(servers, settings=settings, timeout_s=20) as admin:
        admin.create_topics({"orders": TopicSpec(partitions=1)})


async def by_threads(servers: str, settings: dict[str, Any]) -> None:
    with Producer(servers, settings=settings, start_timeout_s=5) as producer:
        producer.send("orders", b"1").result(30)


async def by_asyncio(servers: str, settings: dict[str, Any]) -> None:
    async with AsyncProducer(servers, settings=settings, start_timeout_s=5) as producer:
        await producer.send("orders", b"1")


async def by_wire(servers: str, settings: dict[str, Any]) -> None:
    with Admin(servers, settings=settings, timeout_s=5) as admin:
        admin.list_topics()


CLIENTS: dict[str, Callable[[str, dict[str, Any]], Any]] = {
    "wire": by_wire,
    "threads": by_threads,
    "asyncio": by_asyncio,
}


@pytest.mark.representative("asyncio--310")
@pytest.mark.parametrize("ahead_s", [20, -310])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_difference_that_the_broker_allows_is_no_trouble(client: str, ahead_s: int) -> None:
    """Tokens are good for 300 s. Clients go by how long the endpoint says that is, not by its clock."""
    with kafka(skew_s=30, ahead_s=ahead_s) as (servers, settings):
        administer(servers, settings)
        await CLIENTS[client](servers, settings)


@pytest.mark.representative("threads--360")
@pytest.mark.parametrize("ahead_s", [60, -360])
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_greater_difference_is_a_token_that_the_broker_refuses(client: str, ahead_s: int) -> None:
    with kafka(skew_s=30, ahead_s=ahead_s) as (servers, settings), pytest.raises(AuthenticationError, match="refused"):
        await CLIENTS[client](servers, settings)


@pytest.mark.representative("wire")
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_token_that_is_over_by_the_clients_own_clock_is_an_outage_that_names_the_clock(client: str) -> None:
    with kafka(skew_s=30, ahead_s=0) as (servers, settings):
        issuer = settings_of_a_function(settings, life_s=-100)
        with pytest.raises(
            BrokerUnavailable, match="expired 100 s before it arrived: is the clock of this machine right"
        ):
            await CLIENTS[client](servers, issuer)
