"""PLAIN and SCRAM, the server's half: by the RFC's own example, against Ottla's client half, and with nonsense."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.metadata.records import ScramMechanism, UserScramCredential
from broker_embedded.security.exchange import AuthenticationFailed
from broker_embedded.security.listener import PlainExchange
from broker_embedded.security.principal import certificate_holder
from broker_embedded.security.scram import (
    ScramExchange,
    credential,
    credential_of_salted,
    is_password,
    mechanism_called,
    mechanism_name,
)
from ottla.wire_client.errors import BrokerRefused
from ottla.wire_client.net.sasl import start_exchange

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


def finder(*kept: UserScramCredential) -> Callable[[str], UserScramCredential | None]:
    return {each.name: each for each in kept}.get


def log_in(server: ScramExchange, mechanism: ScramMechanism, name: str, password: str, nonce: str = "abc") -> None:
    """Ottla's own client against the server's half: returns when each is satisfied with the other."""
    client = start_exchange(mechanism_name(mechanism), username=name, password=password, nonce=nonce)
    message = next(client)
    try:
        while True:
            message = client.send(server.evaluate(message))
    except StopIteration:
        return


# --- SCRAM


def test_the_exchange_of_rfc_7677_goes_as_the_rfc_says() -> None:
    kept = credential("user", SHA_256, password="pencil", salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    server = ScramExchange(SHA_256, find=finder(kept), nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    nonces = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO").decode() == (
        f"r={nonces},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert server.user is None
    final = f"c=biws,r={nonces},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.evaluate(final.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "Zoë ☃"])
def test_whoever_knows_the_password_is_let_in(mechanism: ScramMechanism, name: str) -> None:
    kept = credential(name, mechanism, password="päss,word=", salt=b"salt")
    server = ScramExchange(mechanism, find=finder(kept), nonce="xyz")
    log_in(server, mechanism, name, "päss,word=")
    assert server.user == name


def test_a_wrong_password_is_refused_and_not_told_from_an_unknown_user() -> None:
    kept = credential("alice", SHA_256, password="secret", salt=b"salt")
    for name in ("alice", "bob"):
        server = ScramExchange(SHA_256, find=finder(kept), nonce="xyz")
        with pytest.raises(AuthenticationFailed, match=r"wrong password|no credentials") as refused:
            log_in(server, SHA_256, name, "guess")
        assert refused.value.message is None
        assert server.user is None


def test_a_broker_that_has_other_keys_is_refused_by_the_client() -> None:
    real = credential("alice", SHA_256, password="secret", salt=b"salt")
    false = UserScramCredential(
        name="alice",
        mechanism=SHA_256,
        salt=real.salt,
        stored_key=real.stored_key,
        server_key=bytes(32),
        iterations=real.iterations,
    )
    with pytest.raises(BrokerRefused, match="could not prove"):
        log_in(ScramExchange(SHA_256, find=finder(false), nonce="xyz"), SHA_256, "alice", "secret")


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([b"\xff"], "not UTF-8"),
        ([b""], "first message cannot be read"),
        ([b"p=tls-unique,,n=alice,r=abc"], "first message cannot be read"),  # channel binding is not offered
        ([b"n,,n=alice,r="], "first message cannot be read"),
        ([b"n,,n=al=ice,r=abc"], "not escaped"),
        ([b"n,a=bob,n=alice,r=abc"], "authorization id"),
        ([b"n,,n=alice,r=abc", b"c=biws,r=abcxyz"], "final message cannot be read"),
        ([b"n,,n=alice,r=abc", b"c=biws,r=abcother,p=AAAA"], "another nonce"),
        ([b"n,,n=alice,r=abc", b"c=eSws,r=abcxyz,p=AAAA"], "begins otherwise"),
        ([b"n,,n=alice,r=abc", b"c=biws,r=abcxyz,p=AAAA"], "proof has 3 bytes"),
        ([b"n,,n=alice,r=abc", b"c=biws,r=abcxyz,p=AAAAA"], "not"),
    ],
)
def test_a_message_that_breaks_the_rules_ends_the_exchange(messages: list[bytes], reason: str) -> None:
    kept = credential("alice", SHA_256, password="secret", salt=b"salt")
    server = ScramExchange(SHA_256, find=finder(kept), nonce="xyz")
    *before, last = messages
    for message in before:
        server.evaluate(message)
    with pytest.raises(AuthenticationFailed, match=reason):
        server.evaluate(last)
    assert server.user is None


def test_an_authorization_id_that_is_the_user_is_fine() -> None:
    kept = credential("alice", SHA_256, password="secret", salt=b"salt")
    server = ScramExchange(SHA_256, find=finder(kept), nonce="xyz")
    assert server.evaluate(b"n,a=alice,n=alice,r=abc,tokenauth=false").startswith(b"r=abcxyz,")


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_noise_is_never_let_in_and_never_anything_but_refused(messages: list[bytes]) -> None:
    kept = credential_of_salted("a", SHA_512, salted_password=b"x", salt=b"s", iterations=4096)
    for server in (ScramExchange(SHA_512, find=finder(kept), nonce="n"), PlainExchange({"a": "secret"})):
        try:
            for message in messages:
                server.evaluate(message)
        except AuthenticationFailed:
            pass
        assert server.user is None


def test_a_credential_knows_its_password_and_no_other() -> None:
    kept = credential("alice", SHA_512, password="secret", salt=b"salt")
    assert is_password(kept, "secret")
    assert not is_password(kept, "Secret")


def test_mechanisms_are_called_as_sasl_calls_them() -> None:
    assert [mechanism_name(each) for each in ScramMechanism] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert mechanism_called("SCRAM-SHA-512") is SHA_512
    assert mechanism_called("PLAIN") is None


# --- PLAIN


@given(NAMES, NAMES)
def test_plain_lets_in_who_gives_the_password(name: str, password: str) -> None:
    server = PlainExchange({name: password})
    client = start_exchange("PLAIN", username=name, password=password)
    assert server.evaluate(next(client)) == b""
    assert server.user == name


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0guess", "Invalid username or password"),
        (b"\0bob\0secret", "Invalid username or password"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"bob\0alice\0secret", "authorization id"),
    ],
)
def test_plain_says_what_is_wrong(token: bytes, message: str) -> None:
    server = PlainExchange({"alice": "secret"})
    with pytest.raises(AuthenticationFailed) as refused:
        server.evaluate(token)
    assert message in str(refused.value.message)
    assert server.user is None


@pytest.mark.parametrize("token", [b"", b"alice\0secret", b"\0alice\0secret\0", b"\0\xff\0secret"])
def test_what_is_no_token_of_plain_is_refused_in_general(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        PlainExchange({"alice": "secret"}).evaluate(token)
    assert refused.value.message is None


# --- names


def test_the_holder_of_a_certificate_is_called_by_its_distinguished_name() -> None:
    subject = ((("countryName", "SE"),), (("organizationName", "Ottla, Inc"),), (("commonName", "orders"),))
    assert certificate_holder(subject) == "User:CN=orders,O=Ottla\\, Inc,C=SE"
