"""Publishes at QoS 1 over many MQTT 3.1.1 connections, from one thread, and prints the figures as a line of JSON.

    python benchmarks/mqtt_load.py PORT --connections 1000 --window 20 --messages 100000 [--rate 10000]

Each connection has at most `--window` messages without an acknowledgement. With `--rate`, all connections together send
that many messages per second, in turn. Packets are made before the measurement, so that this program uses little CPU.
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import time
from collections import deque

_IDS = 1_000


class Connection:
    def __init__(self, port: int, number: int, payload: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        client = f"load-{number}".encode()
        body = b"\0\4MQTT\4\2\0\0" + len(client).to_bytes(2, "big") + client
        self.socket.sendall(bytes((0x10, len(body))) + body)
        answer = self.socket.recv(4)
        if answer[:1] != b"\x20" or answer[3]:
            raise SystemExit(f"connection {number} was refused: {answer!r}")
        topic = f"load/{number}".encode()
        parts = []
        for packet_id in range(1, _IDS + 1):
            rest = len(topic).to_bytes(2, "big") + topic + packet_id.to_bytes(2, "big") + payload
            size = len(rest)
            length = bytes((size,)) if size < 128 else bytes((size & 0x7F | 0x80, size >> 7))
            parts.append(b"\x32" + length + rest)
        self.size = len(parts[0])
        self.packets = memoryview(b"".join(parts) * 2)
        self.at = 0
        self.sent: deque[float] = deque()

    def send(self, count: int, now_s: float) -> None:
        begin = self.at * self.size
        self.socket.sendall(self.packets[begin : begin + count * self.size])
        self.at = (self.at + count) % _IDS
        self.sent.extend([now_s] * count)


def run(port: int, connections: int, window: int, messages: int, rate: float | None) -> dict[str, float]:
    made = {each.socket.fileno(): each for each in (Connection(port, n, b"x" * 100) for n in range(connections))}
    poll = select.epoll()
    for number in made:
        poll.register(number, select.EPOLLIN)
    began_s = time.perf_counter()
    left, acknowledged = messages, 0
    everyone = list(made.values())
    turn = 0
    waits: list[float] = []
    if rate is None:
        for each in everyone:
            first = min(window, left)
            each.send(first, began_s)
            left -= first
    while acknowledged < messages:
        for number, _ in poll.poll(0.002 if rate is not None else 5):
            each = made[number]
            got = len(each.socket.recv(65_536))
            if not got:
                raise SystemExit("the server closed a connection")
            now_s = time.perf_counter()
            count = got // 4
            acknowledged += count
            for _ in range(count):
                waits.append(now_s - each.sent.popleft())
            if rate is None and left:
                more = min(count, left)
                each.send(more, now_s)
                left -= more
        if rate is not None:
            now_s = time.perf_counter()
            due = min(messages, int((now_s - began_s) * rate)) - (messages - left)
            for _ in range(due):
                everyone[turn % connections].send(1, now_s)
                turn += 1
            left -= max(0, due)
    seconds = time.perf_counter() - began_s
    waits.sort()
    return {
        "seconds": seconds,
        "rate": messages / seconds,
        "p50_ms": waits[len(waits) // 2] * 1000,
        "p99_ms": waits[len(waits) * 99 // 100] * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--window", type=int, default=20)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rate", type=float)
    given = parser.parse_args()
    print(json.dumps(run(given.port, given.connections, given.window, given.messages, given.rate)))


if __name__ == "__main__":
    main()
