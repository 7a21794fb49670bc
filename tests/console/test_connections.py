"""Connections that take the console's room without asking anything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from console_kit import TOKEN, Running
from starlette.applications import Starlette

from ottla.console import connections
from ottla.console.server import Server
from ottla.testing import make_certificates

HALF = b"GET /api/cluster HTTP/1.1\r\nHost: loc"


@contextmanager
def opened(console: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", console.port), timeout=30) as made:
        yield made


def is_closed(connection: socket.socket) -> bool:
    """Whether the console closes it, once that is so; an answer before is passed over."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_sockets_with_half_a_header_keep_nobody_out(console: Running) -> None:
    with ExitStack() as held:
        for _ in range(connections.MOST_CONNECTIONS + 150):
            held.enter_context(opened(console)).sendall(HALF)
        assert console.get("cluster")["brokers"]


def test_connections_that_are_kept_after_an_answer_make_room_too(console: Running) -> None:
    with ExitStack() as held:
        for _ in range(connections.MOST_CONNECTIONS + 20):
            made = held.enter_context(opened(console))
            made.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % console.port)
            assert made.recv(12) == b"HTTP/1.1 200"
        assert console.get("cluster")["brokers"]


def test_a_header_that_is_not_whole_in_time_ends_its_connection(
    console: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_S", 0.2)
    with opened(console) as made:
        made.sendall(HALF)
        assert is_closed(made)


def test_bytes_that_drip_after_an_answer_do_not_keep_the_connection(
    console: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEPT_S", 0.3)
    with opened(console) as made:
        made.sendall(b"GET /missing HTTP/1.1\r\nHost: nobody\r\n\r\n" + HALF)
        assert is_closed(made)


def test_a_body_that_nobody_wants_does_not_keep_the_connection(
    console: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "KEPT_S", 0.3)
    with opened(console) as made:
        made.sendall(b"POST /api/topics HTTP/1.1\r\nHost: nobody\r\nContent-Length: 100000\r\n\r\n{")
        assert is_closed(made)


def test_a_client_that_does_not_read_its_answers_is_cut_off(console: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.2)
    ask = b"GET /static/app.js HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % console.port
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        made.settimeout(30)
        made.connect(("127.0.0.1", console.port))
        with pytest.raises(ConnectionError):
            made.sendall(ask * 1_000_000)  # its answers are more than all buffers hold


def test_a_handshake_that_does_not_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_S", 0.2)
    made = make_certificates(tmp_path)
    server = Server(lambda _: Starlette(), host="127.0.0.1", port=0, certificate=(str(made.server), str(made.server)))
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
            connection.sendall(b"\x16\x03\x01")
            assert is_closed(connection)
    finally:
        server.close()


def test_a_tail_stays_open_longer_than_a_header_may_take(
    console: Running, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEADER_S", 0.2)
    monkeypatch.setattr(connections, "KEPT_S", 0.2)
    ask = f"GET /api/tail?topic={orders} HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nAuthorization: Bearer {TOKEN}"
    with opened(console) as made:
        made.sendall(ask.encode() + b"\r\n\r\n")
        content = b""
        while content.count(b": nothing") < 3:  # a comment each half second
            piece = made.recv(65_536)
            assert piece, content
            content += piece
