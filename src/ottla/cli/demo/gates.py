"""The demo's gate sensors: they publish each departure by MQTT, and a bridge writes it to Kafka before it acknowledges.

Each airport has one sensor, a connection of its own. What Kafka does not have is not acknowledged, also while the
leading broker is dead.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence

from ottla import columnar
from ottla.bridge import Bridge, BridgeSettings, Rule
from ottla.bridge.mqtt.codes import V311, PacketType
from ottla.bridge.mqtt.packet_encoding import encode_connect, encode_publish
from ottla.bridge.mqtt.packet_frames import Framer
from ottla.bridge.mqtt.packets import Connect, Publish
from ottla.cli.demo.account import Line
from ottla.cli.demo.background import Background
from ottla.cli.demo.display import DemoStage
from ottla.cli.demo.model import GATES_TOPIC, Flight

_WINDOW = 50
_ANSWER_S = 60.0
"""A broker that dies is replaced sooner."""
_LARGEST_PACKET = 1_024
_CONNACK = int(PacketType.CONNACK)
_PUBACK = int(PacketType.PUBACK)


class GateSensors(Background):
    """A bridge, and a sensor for each airport that publishes its departures in order."""

    def __init__(self, bootstrap_servers: str, flights: Sequence[Flight], *, stage: DemoStage) -> None:
        super().__init__("demo-gates", stage)
        self._bootstrap = bootstrap_servers
        self._departures = departures_of(flights)
        self._stopping = threading.Event()
        self.acknowledged: set[int] = set()
        """Event ids of the departures whose PUBACK came."""
        stage.total = sum(map(len, self._departures.values()))

    def stop(self) -> None:
        """End early. Returns when the thread has ended."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def line(self) -> Line:
        """Return the account's line about gate sensors: every departure is acknowledged, and in Kafka."""
        written = set(_written(self._bootstrap))
        return Line(
            what="gate sensors, by MQTT",
            found=f"{len(self.acknowledged):,} acknowledged, {len(written):,} in Kafka",
            holds=self.acknowledged == written and len(written) == self._stage.total,
        )

    def _work(self) -> None:
        rule = Rule("gates/+/+", GATES_TOPIC, key="{1}/{2}")
        with Bridge(self._bootstrap, BridgeSettings(listen=["127.0.0.1:0"], rules=[rule])) as bridge:
            sensors = {airport: _Sensor(bridge.ports[0], airport) for airport in self._departures}
            try:
                self._publish(sensors)
            finally:
                for sensor in sensors.values():
                    sensor.close()

    def _publish(self, sensors: Mapping[str, _Sensor]) -> None:
        """Publish a window of each sensor in turn."""
        left = {airport: iter(departures) for airport, departures in self._departures.items()}
        while left and not self._stopping.is_set():
            for airport in list(left):
                window = [event for _, event in zip(range(_WINDOW), left[airport], strict=False)]
                sensors[airport].publish(window)
                self.acknowledged.update(event_id for event_id, _ in window)
                if len(window) < _WINDOW:
                    del left[airport]
            self._stage.done = len(self.acknowledged)


def departures_of(flights: Sequence[Flight]) -> dict[str, list[tuple[int, Flight]]]:
    """Return airport → its departures, each with its event id. A cancelled flight has none."""
    found: dict[str, list[tuple[int, Flight]]] = {}
    for event_id, flight in enumerate(flights):
        if flight.dep_time is not None:
            found.setdefault(flight.origin, []).append((event_id, flight))
    return found


class _Sensor:
    """A client of MQTT 3.1.1 with one connection."""

    def __init__(self, port: int, airport: str) -> None:
        self._airport = airport
        self._framer = Framer(max_packet_bytes=_LARGEST_PACKET)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S)
        self._socket.sendall(encode_connect(Connect(client_id=f"gates-{airport}", version=V311)))
        self._await(_CONNACK, 1)

    def publish(self, window: Sequence[tuple[int, Flight]]) -> None:
        """Publish at QoS 1. Returns when all are acknowledged; raises `ConnectionError` if they will not be."""
        packets = bytearray()
        for packet_id, (event_id, flight) in enumerate(window, 1):
            name = f"{flight.carrier}{flight.flight}"
            event = {"event_id": event_id, "flight": name, "dest": flight.dest, "dep_time": flight.dep_time}
            message = Publish(f"gates/{self._airport}/{name}", json.dumps(event).encode(), qos=1, packet_id=packet_id)
            packets += encode_publish(message, V311)
        self._socket.sendall(packets)
        self._await(_PUBACK, len(window))

    def close(self) -> None:
        self._socket.close()

    def _await(self, kind: int, count: int) -> None:
        while count:
            data = self._socket.recv(4_096)
            frames = self._framer.feed(data)
            if not data or any(first >> 4 != kind for first, _ in frames):
                raise ConnectionError(f"gates-{self._airport}: the bridge ended the connection")
            count -= len(frames)


def _written(bootstrap_servers: str) -> Iterator[int]:
    for batch in columnar.read(GATES_TOPIC, bootstrap_servers=bootstrap_servers, columns=("value",)):
        for value in batch.column("value").to_pylist():
            yield json.loads(value)["event_id"]
