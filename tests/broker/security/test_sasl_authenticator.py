"""The states of an authentication: what may be asked in each, and how it ends."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker_embedded.common.errors import BrokerError
from broker_embedded.security.authenticator import SaslAuthenticator, SaslState
from broker_embedded.security.listener import PlainExchange
from broker_embedded.security.principal import ANONYMOUS
from ottla_wire.protocol import ApiKey, ErrorCode

GOOD, BAD = b"\0alice\0secret", b"\0alice\0guess"
BEFORE = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


def new_authenticator() -> SaslAuthenticator:
    return SaslAuthenticator(
        mechanisms=("PLAIN", "SCRAM-SHA-256"), new_exchange=lambda mechanism: PlainExchange({"alice": "secret"})
    )


def allowed(authenticator: SaslAuthenticator) -> set[ApiKey]:
    return {key for key in ApiKey if authenticator.allows(key)}


def test_a_client_asks_for_versions_chooses_a_mechanism_and_authenticates() -> None:
    authenticator = new_authenticator()
    assert allowed(authenticator) == {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}
    authenticator.on_api_versions()
    assert allowed(authenticator) == {ApiKey.SASL_HANDSHAKE}
    authenticator.shake_hands("PLAIN", version=1)
    assert allowed(authenticator) == {ApiKey.SASL_AUTHENTICATE}
    assert not authenticator.takes_bare_tokens
    assert authenticator.principal == ANONYMOUS
    assert authenticator.authenticate(GOOD) == b""
    assert authenticator.is_complete
    assert allowed(authenticator) == set(ApiKey)
    assert authenticator.principal == "User:alice"


def test_a_client_may_choose_a_mechanism_at_once() -> None:
    authenticator = new_authenticator()
    authenticator.shake_hands("PLAIN", version=0)
    assert authenticator.takes_bare_tokens
    authenticator.authenticate(GOOD)
    assert authenticator.is_complete
    assert not authenticator.takes_bare_tokens


def test_a_mechanism_that_is_not_enabled_ends_it() -> None:
    authenticator = new_authenticator()
    with pytest.raises(BrokerError) as refused:
        authenticator.shake_hands("SCRAM-SHA-512", version=1)
    assert refused.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert authenticator.has_failed


def test_a_wrong_password_ends_it() -> None:
    authenticator = new_authenticator()
    authenticator.shake_hands("PLAIN", version=1)
    with pytest.raises(BrokerError, match="Invalid username or password") as refused:
        authenticator.authenticate(BAD)
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert authenticator.has_failed
    assert allowed(authenticator) == set()
    assert authenticator.principal == ANONYMOUS


def test_a_token_that_cannot_be_read_is_refused_with_a_sentence_that_tells_nothing() -> None:
    authenticator = new_authenticator()
    authenticator.shake_hands("PLAIN", version=1)
    with pytest.raises(BrokerError, match="due to invalid credentials with SASL mechanism PLAIN"):
        authenticator.authenticate(b"nonsense")


def test_whoever_is_known_is_not_asked_again() -> None:
    authenticator = new_authenticator()
    authenticator.shake_hands("PLAIN", version=1)
    authenticator.authenticate(GOOD)
    with pytest.raises(BrokerError) as again:
        authenticator.shake_hands("PLAIN", version=1)
    assert again.value.code is ErrorCode.ILLEGAL_SASL_STATE
    with pytest.raises(BrokerError) as once_more:
        authenticator.authenticate(GOOD)
    assert once_more.value.code is ErrorCode.ILLEGAL_SASL_STATE
    assert authenticator.is_complete


class AnyOrder(RuleBasedStateMachine):
    """Whatever a client sends in whatever order, only the right password lets it in."""

    def __init__(self) -> None:
        super().__init__()
        self.authenticator = new_authenticator()
        self.gave_the_password = False

    @rule()
    def ask_for_versions(self) -> None:
        if self.authenticator.allows(ApiKey.API_VERSIONS):
            self.authenticator.on_api_versions()

    @rule(mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256", "GSSAPI"]), version=st.integers(0, 1))
    def choose(self, mechanism: str, version: int) -> None:
        if self.authenticator.allows(ApiKey.SASL_HANDSHAKE):
            try:
                self.authenticator.shake_hands(mechanism, version=version)
            except BrokerError:
                assert mechanism == "GSSAPI" or self.authenticator.is_complete

    @rule(token=st.sampled_from([GOOD, BAD, b"", b"\0"]))
    def authenticate(self, token: bytes) -> None:
        if self.authenticator.allows(ApiKey.SASL_AUTHENTICATE):
            was_chosen = self.authenticator.state is SaslState.AUTHENTICATE
            try:
                self.authenticator.authenticate(token)
            except BrokerError:
                assert token != GOOD or not was_chosen
            else:
                self.gave_the_password = self.gave_the_password or token == GOOD

    @invariant()
    def nobody_else_is_let_in(self) -> None:
        assert self.authenticator.is_complete == self.gave_the_password
        assert self.authenticator.is_complete or allowed(self.authenticator) <= BEFORE


TestAnyOrder = AnyOrder.TestCase
