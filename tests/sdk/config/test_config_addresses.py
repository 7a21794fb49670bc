"""`bootstrap.servers` is taken apart in one place, so every client means the same by it, or refuses it the same."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.aio.client.reachable import connect as connect_on_asyncio
from ottla.browse.topic_reader import TopicReader
from ottla.browse.topic_writer import write_all
from ottla.columnar import wire_settings
from ottla.config import Address, BadAddress, admin_settings, consumer_settings, parse_addresses, producer_settings
from ottla.errors import BrokerUnavailable, ConfigError
from ottla.stepping import run, run_async
from ottla.testing.topics import check_reachable, create_topic
from ottla.wire_client.net.reachability import connect, first_listening

NAMES = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9_])?", fullmatch=True).filter(
    lambda name: not name.isdecimal()
)
HOSTS = st.one_of(NAMES, st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str))
PROTOCOLS = st.sampled_from([None, "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
ADDRESSES = st.builds(Address, HOSTS, st.integers(1, 65_535), PROTOCOLS)


@given(st.lists(ADDRESSES, min_size=1, max_size=5), st.sampled_from([",", ", ", " , "]))
def test_every_list_of_addresses_reads_back_as_it_was_written(addresses: list[Address], comma: str) -> None:
    assert parse_addresses(comma.join(map(str, addresses))) == tuple(addresses)


@given(HOSTS, PROTOCOLS)
def test_without_a_port_it_is_kafkas(host: str, protocol: str | None) -> None:
    before = "" if protocol is None else f"{protocol.lower()}://"
    written = f"[{host}]" if ":" in host else host
    assert parse_addresses(before + written) == (Address(host, 9092, protocol),)


@given(st.one_of(st.text(max_size=30), st.text("[]:,/ 0129af.%aPLINTEX", max_size=30)))
def test_any_text_is_addresses_or_is_refused_with_what_was_wanted(text: str) -> None:
    try:
        addresses = parse_addresses(text)
    except BadAddress as error:
        assert str(error).startswith("host:port[,host:port...]")  # noqa: PT017 - either way is right
        return
    assert len(addresses) == text.count(",") + 1
    for address in addresses:
        assert address.host.strip()
        assert 1 <= address.port <= 65_535
        assert parse_addresses(str(address)) == (address,)


@given(st.ip_addresses(v=6), st.one_of(st.just(""), st.integers(1, 65_535).map(lambda port: f":{port}")))
def test_ipv6_without_brackets_is_refused_because_its_port_cannot_be_told(
    address: ipaddress.IPv6Address, port: str
) -> None:
    with pytest.raises(BadAddress, match=r"an IPv6 address stands in brackets: \[::1\]:9092"):
        parse_addresses(f"{address}{port}")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "of at least one broker"),
        (",", "address 1 of 2 is empty: is a comma too many?"),
        ("a:1,", "address 2 of 2 is empty"),
        ("a:1,,b:2", "address 2 of 3 is empty"),
        ("a:0", "each port from 1 to 65535"),
        ("a:", "each port from 1 to 65535"),
        ("a:65536", "each port from 1 to 65535"),
        ("a:²", "each port from 1 to 65535"),
        (":9092", "'' is no host name"),
        ("9092", "'9092' has no host, as in localhost:9092"),
        ("a b:1", "'a b' is no host name"),
        ("user@a:1", "'user@a' is no host name"),
        ("http://a:1", "before it nothing or one of PLAINTEXT://, SSL://, SASL_PLAINTEXT://, SASL_SSL://"),
        ("[::1", r"with an IPv6 address in brackets: [::1]:9092"),
        ("[localhost]:1", r"with an IPv6 address in brackets"),
        ("[::1]9092", r"with an IPv6 address in brackets"),
    ],
)
def test_what_is_wrong_is_said_and_every_way_in_refuses_it_alike(text: str, wanted: str) -> None:
    with pytest.raises(BadAddress) as caught:
        parse_addresses(text)
    assert wanted in str(caught.value)

    ways_in = [
        lambda: producer_settings(text, environ={}),
        lambda: consumer_settings(text, environ={}),
        lambda: admin_settings(text, environ={}),
        lambda: wire_settings({"bootstrap.servers": text}),
        lambda: check_reachable(text),
        lambda: create_topic(text, "orders"),
        lambda: TopicReader(text, "orders"),
        lambda: write_all(text, "orders", [b"v"]),
    ]
    for way_in in ways_in:
        with pytest.raises(ConfigError) as refused:
            way_in()
        assert "bootstrap" in str(refused.value)
        assert wanted in str(refused.value) or not text


def test_a_protocol_must_be_that_of_the_security_settings() -> None:
    """librdkafka passes over such an address without an error, and then has none."""
    for make in (producer_settings, consumer_settings):
        with pytest.raises(
            ConfigError, match=r"security\.protocol: found PLAINTEXT .*, wanted SSL, because .*SSL://a:1"
        ):
            make("SSL://a:1", environ={})
        assert make("ssl://a:1", settings={"security.protocol": "SSL"}, environ={})["security.protocol"] == "SSL"
    with pytest.raises(ConfigError, match=r"security\.protocol: found PLAINTEXT, wanted SSL, because .*SSL://a:1"):
        wire_settings({"bootstrap.servers": "SSL://a:1"})
    assert wire_settings({"bootstrap.servers": "SSL://a:1", "security.protocol": "ssl"}).bootstrap_servers == (
        ("a", 1),
    )


def test_aiokafka_is_given_addresses_without_the_protocol_that_it_does_not_know() -> None:
    settings = producer_settings("PLAINTEXT://a, [::1]:9093", environ={})
    assert settings.to_aiokafka()["bootstrap_servers"] == ["a:9092", "[::1]:9093"]


async def test_the_first_that_listens_is_found_and_what_does_not_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as gone:
        listening = Address("127.0.0.1", server.getsockname()[1])
        silent = Address("127.0.0.1", gone.getsockname()[1], "PLAINTEXT")
        gone.close()
        both, alone = ([silent, listening], [silent])
        assert run(first_listening(both, timeout_s=30, connect=connect)) == listening
        assert await run_async(first_listening(both, timeout_s=30, connect=connect_on_asyncio)) == listening
        found = run(first_listening(alone, timeout_s=30, connect=connect))
        assert str(found).startswith(f"PLAINTEXT://127.0.0.1:{silent.port}: ")
        found = await run_async(first_listening(alone, timeout_s=30, connect=connect_on_asyncio))
        assert str(found).startswith(f"{silent}: ")
        with pytest.raises(BrokerUnavailable, match=f"no Kafka broker answered at 127.0.0.1:{silent.port}: "):
            check_reachable(silent.host_and_port, timeout_s=30)
