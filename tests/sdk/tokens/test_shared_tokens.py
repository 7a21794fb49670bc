"""The token source of a process, against a real token endpoint whose clock a test moves."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from token_clients import tokens_for, until

from ottla.clock import ManualClock
from ottla.errors import AuthenticationError, BrokerUnavailable, ConfigError
from ottla.testing.oidc import OidcEndpoint
from ottla.tokens import Token, TokenRefused, TokenUnavailable
from ottla.tokens.settings import token_settings
from ottla.tokens.shared import forget_sources, tokens_of

LIFE_S = 300


def test_fifty_clients_cause_one_fetch(endpoint: OidcEndpoint) -> None:
    with endpoint.held(), ThreadPoolExecutor(50) as pool:
        asking = [pool.submit(lambda: tokens_for(endpoint).get().value) for _ in range(50)]
        endpoint.wait_for_a_held_request()
        endpoint._go.set()
        assert len({each.result(30) for each in asking}) == 1
    assert endpoint.asked == 1


async def test_fifty_clients_of_an_event_loop_cause_one_fetch(endpoint: OidcEndpoint) -> None:
    found = await asyncio.gather(*(tokens_for(endpoint).get_async() for _ in range(50)))
    assert len({token.value for token in found}) == 1
    assert endpoint.asked == 1


def test_a_token_is_renewed_ahead_and_nobody_waits_for_it(endpoint: OidcEndpoint, clock: ManualClock) -> None:
    tokens = tokens_for(endpoint)
    first = tokens.get()
    clock.advance(int(LIFE_S * 800))
    with endpoint.held():
        assert tokens.get() == first
        endpoint.wait_for_a_held_request()
        assert tokens.get() == first
    until(lambda: tokens.get() != first)
    assert endpoint.asked == 2


def test_the_last_good_token_outlives_the_endpoint_until_it_expires(
    endpoint: OidcEndpoint, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = tokens_for(endpoint)
    first = tokens.get()
    endpoint.fail(503)
    clock.advance(LIFE_S * 900)
    assert tokens.get() == first
    until(lambda: "token_not_renewed" in caplog.text)
    clock.advance(LIFE_S * 100)
    with pytest.raises(TokenUnavailable, match="HTTP 503"):
        tokens.get()
    with pytest.raises(TokenUnavailable, match="HTTP 503"):  # at once, of the pause
        tokens.get()
    endpoint.recover()
    clock.advance(60_000)
    assert tokens.get() != first


def test_an_outage_is_an_outage_of_the_broker_to_whoever_retries(endpoint: OidcEndpoint) -> None:
    endpoint.fail(500)
    with pytest.raises(BrokerUnavailable):
        tokens_for(endpoint).get()


def test_a_wrong_secret_is_refused_for_good_and_not_shown(endpoint: OidcEndpoint) -> None:
    tokens = tokens_for(endpoint, **{"sasl.oauthbearer.client.secret": "a-wrong-s3cr3t"})
    with pytest.raises(TokenRefused, match="HTTP 401, invalid_client") as refused:
        tokens.get()
    assert isinstance(refused.value, AuthenticationError)
    assert "s3cr3t" not in str(refused.value)


def test_an_endpoint_that_repeats_the_secret_does_not_bring_it_into_the_error(endpoint: OidcEndpoint) -> None:
    endpoint.fail(400, "invalid_client", "the secret alice-secret of alice\nis wrong")
    with pytest.raises(TokenRefused) as refused:
        tokens_for(endpoint).get()
    assert "alice-secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_dead_endpoint_is_named(clock: ManualClock) -> None:
    settings = token_settings(
        {
            "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
            "sasl.oauthbearer.client.id": "a",
            "sasl.oauthbearer.client.secret": "b",
        }
    )
    with pytest.raises(TokenUnavailable, match=r"token endpoint http://127.0.0.1:1/token: Connection refused"):
        tokens_of(settings).get()
    forget_sources()


def test_an_address_that_is_no_token_endpoint_is_said(endpoint: OidcEndpoint) -> None:
    url = f"{endpoint.issuer}/other"
    with pytest.raises(TokenRefused, match="HTTP 404"):
        tokens_for(endpoint, **{"sasl.oauthbearer.token.endpoint.url": url}).get()


def test_a_file_is_read_again_when_it_is_renewed(endpoint: OidcEndpoint, clock: ManualClock, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(endpoint.issue("alice").value)
    tokens = tokens_of(token_settings({"sasl.oauthbearer.token.endpoint.url": file.as_uri()}))
    first = tokens.get()
    assert first.principal == "alice"
    renewed = endpoint.issue("alice", life_s=2 * LIFE_S)
    (tmp_path / "next").write_text(renewed.value + "\n")
    (tmp_path / "next").rename(file)
    clock.advance(LIFE_S * 800)
    until(lambda: tokens.get().value == renewed.value)


@pytest.mark.parametrize("content", ["", "half.a.", "\xff", "{}", "x" * 2_000_000])
def test_a_file_with_something_else_is_not_used(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(TokenUnavailable, match="token"):
        tokens_of(token_settings({"sasl.oauthbearer.token.endpoint.url": file.as_uri()})).get()


def test_a_callable_returns_a_token(endpoint: OidcEndpoint) -> None:
    tokens = tokens_of(token_settings({"sasl.oauthbearer.token": lambda: endpoint.issue("bob")}))
    assert tokens.get().principal == "bob"


async def test_an_async_callable_runs_on_the_loop_of_the_clients(endpoint: OidcEndpoint) -> None:
    from ottla.tokens.callables import prefer_loop

    here = asyncio.get_running_loop()
    prefer_loop(here)
    seen: list[Any] = []

    async def token() -> Token:
        seen.append(asyncio.get_running_loop())
        return endpoint.issue("carol")

    tokens = tokens_of(token_settings({"sasl.oauthbearer.token": token}))
    assert (await tokens.get_async()).principal == "carol"
    assert seen == [here]


def test_an_async_callable_runs_without_a_loop_too(endpoint: OidcEndpoint) -> None:
    async def token() -> Token:
        await asyncio.sleep(0)
        return endpoint.issue("carol")

    assert tokens_of(token_settings({"sasl.oauthbearer.token": token})).get().principal == "carol"


def test_a_callable_that_raises_is_an_outage_and_what_it_said_is_not_repeated(clock: ManualClock) -> None:
    def token() -> Token:
        raise RuntimeError("the secret is s3cr3t")

    with pytest.raises(TokenUnavailable, match="raised RuntimeError") as failed:
        tokens_of(token_settings({"sasl.oauthbearer.token": token})).get()
    assert "s3cr3t" not in str(failed.value)


def test_a_callable_that_returns_something_else_is_a_mistake(clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match=r"returned str, wanted an ottla\.tokens\.Token"):
        tokens_of(token_settings({"sasl.oauthbearer.token": lambda: "abc"})).get()


@pytest.mark.parametrize("length", [2, 3, 4])
def test_oauth_cb_returns_what_confluent_kafka_wants(endpoint: OidcEndpoint, length: int) -> None:
    issued = endpoint.issue("dave")
    found = (issued.value, issued.expires_at, "dave", {"pool": "p-1"})[:length]
    token = tokens_of(token_settings({"oauth_cb": lambda config: found})).get()
    assert (token.value, token.expires_at) == (issued.value, issued.expires_at)
    assert dict(token.extensions) == ({"pool": "p-1"} if length == 4 else {})


@pytest.mark.parametrize("found", [None, "abc", (), ("abc",), ("a", 1, "b", {}, 5), ("a", 1.0, 3)])
def test_oauth_cb_that_returns_something_else_is_a_mistake(clock: ManualClock, found: object) -> None:
    with pytest.raises(ConfigError, match="oauth_cb"):
        tokens_of(token_settings({"oauth_cb": lambda config: found})).get()


def test_unsecured_tokens_by_librdkafkas_settings(clock: ManualClock) -> None:
    given = {
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=eve scope=a,b lifeSeconds=60 extension_pool=p",
    }
    token = tokens_of(token_settings(given)).get()
    assert (token.principal, dict(token.extensions)) == ("eve", {"pool": "p"})
    assert token.value.endswith(".")


def test_a_source_is_another_one_in_another_process(endpoint: OidcEndpoint) -> None:
    tokens = tokens_for(endpoint)
    assert pickle.loads(pickle.dumps(tokens)) is tokens  # of the same settings in the same process


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_while_a_fetch_is_in_flight_fetches_its_own(endpoint: OidcEndpoint) -> None:
    tokens = tokens_for(endpoint)
    with endpoint.held():
        asking = threading.Thread(target=tokens.get)
        asking.start()
        endpoint.wait_for_a_held_request()
        child = os.fork()
        if child == 0:
            endpoint._go.set()  # of the child's copy, which serves nobody
            try:
                tokens.get(timeout_s=20)
            except BaseException:
                os._exit(1)
            os._exit(0)
        endpoint.wait_for_a_held_request()  # the child's own
    asking.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert endpoint.asked == 2
