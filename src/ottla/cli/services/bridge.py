"""`ottla bridge`: MQTT and AMQP publishers into Kafka, acknowledged once Kafka has their messages."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.shared.cluster_options import check_reachable, client_settings, reaches_a_cluster, takes_settings_of
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.options import takes
from ottla.cli.shared.parameter_types import Seconds
from ottla.cli.shared.serving import serves_health, stopped_by_signals, telemetry_and_health
from ottla.cli.shared.target import import_target
from ottla.config import Settings
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from ottla.bridge import BridgeSettings


_PASSWORD = "OTTLA_BRIDGE_PASSWORD"


@click.group(cls=CommandGroup)
def bridge() -> None:
    """Take MQTT and AMQP messages into Kafka. A publisher's message is acknowledged once Kafka has it with acks=all.

    \b
    Examples:
      ottla bridge mqtt --listen 127.0.0.1:1883 --map 'sensors/#=sensors'
      ottla bridge amqp --connect amqp://rabbit/shop --queue orders --mapping bridge.toml
    """


_maps: Final = takes(
    click.option(
        "--map",
        "maps",
        multiple=True,
        metavar="FILTER=TOPIC[=KEY]",
        help="A rule, as sensors/+/temp=temperature={1}; may be repeated. Rules of --mapping come after.",
    ),
    click.option(
        "--mapping",
        "mapping_file",
        type=click.Path(dir_okay=False),
        help="A TOML file of rules; read again at SIGHUP.",
    ),
    click.option("--dead-letter-topic", metavar="TOPIC", help="Where messages go that Kafka or a serde refuses."),
    click.option(
        "--max-in-flight",
        type=click.IntRange(1),
        default=100_000,
        show_default=True,
        help="Records that Kafka has not acknowledged; beyond it nothing more is taken.",
    ),
    click.option(
        "--max-in-flight-bytes",
        type=click.IntRange(1_024),
        default=67_108_864,
        show_default=True,
        help="Bytes of these records.",
    ),
    click.option(
        "--drain",
        "drain_s",
        type=Seconds(0),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a stop waits for Kafka.",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Read lines of TOPIC PAYLOAD from standard input and print what each becomes; send nothing.",
    ),
)
"""Adds the options that every road has."""


@bridge.command()
@click.option(
    "--listen",
    multiple=True,
    metavar="ADDRESS",
    help="Take publishers here: HOST:PORT, or mqtts://, ws:// or wss:// before it; may be repeated.",
)
@click.option("--connect", metavar="URL", help=f"Subscribe to this broker: mqtt://user@host. Password: {_PASSWORD}.")
@click.option("--subscribe", multiple=True, metavar="FILTER", help="With --connect: a topic filter; may be repeated.")
@click.option("--client-id", help="With --connect: the id that the broker keeps the session under.")
@click.option("--share", metavar="GROUP", help="With --connect: share the messages with other bridges of this group.")
@click.option("--qos", type=click.IntRange(0, 2), default=1, show_default=True, help="With --connect: highest QoS.")
@click.option(
    "--mqtt-version", type=click.Choice(["3.1.1", "5.0"]), default="5.0", show_default=True, help="With --connect."
)
@click.option("--users", "users_file", type=click.Path(dir_okay=False), help="A file of `mosquitto_passwd`.")
@click.option("--tls-certificate", type=click.Path(dir_okay=False), help="Certificate chain of mqtts:// and wss://.")
@click.option("--tls-key", type=click.Path(dir_okay=False), help="Its key, if it is not in the same file.")
@click.option("--client-ca", type=click.Path(dir_okay=False), help="Clients need a certificate that these CAs signed.")
@click.option("--max-connections", type=click.IntRange(1), default=20_000, show_default=True, help="Open connections.")
@click.option("--max-qos", type=click.IntRange(0, 2), default=2, show_default=True, help="The highest QoS taken.")
@click.option(
    "--receive-maximum",
    type=click.IntRange(1, 65_535),
    help="Messages of one client that are not acknowledged (100), or of the broker with --connect (1000).",
)
@click.option(
    "--max-packet-bytes",
    type=click.IntRange(1_024, 268_435_455),
    default=1_048_576,
    show_default=True,
    help="Largest MQTT packet.",
)
@_maps
@reaches_a_cluster
@takes_settings_of("producer")
@serves_health
def mqtt(
    kafka: Settings,
    listen: tuple[str, ...],
    connect: str | None,
    subscribe: tuple[str, ...],
    client_id: str | None,
    share: str | None,
    qos: int,
    mqtt_version: str,
    users_file: str | None,
    tls_certificate: str | None,
    tls_key: str | None,
    client_ca: str | None,
    max_connections: int,
    max_qos: int,
    receive_maximum: int | None,
    max_packet_bytes: int,
    health_port: int | None,
    health_host: str,
    **common: Any,
) -> None:
    """Take messages from MQTT publishers, or subscribe to an MQTT broker, until SIGTERM or Ctrl-C.

    \b
    Examples:
      ottla bridge mqtt --listen 127.0.0.1:1883 --map 'sensors/#=sensors'
      ottla bridge mqtt --listen 127.0.0.1:1883 --mapping bridge.toml --health-port 8080
      echo 'sensors/7/temp 21.5' | ottla bridge mqtt --map 'sensors/+/temp=temperature={1}' --dry-run
    """
    from ottla.bridge import BridgeSettings, ListenerLimits, MqttSource, TlsFiles, source_url

    sources = []
    if connect is not None:
        if client_id is None:
            raise ConfigError("--client-id: wanted with --connect: the broker keeps the session under it")
        url = source_url(connect, kind="mqtt", password=os.environ.get(_PASSWORD))
        sources.append(
            MqttSource(
                url=url,
                filters=subscribe or ("#",),
                client_id=client_id,
                group=share,
                qos=qos,
                version=5 if mqtt_version == "5.0" else 4,
                window=receive_maximum or 1_000,
            )
        )
    tls = None
    if tls_certificate is not None:
        tls = TlsFiles(certificate=tls_certificate, key=tls_key, client_ca=client_ca)
    settings = BridgeSettings(
        listen=listen,
        sources=sources,
        users_file=users_file,
        tls=tls,
        max_connections=max_connections,
        limits=ListenerLimits(
            max_qos=max_qos, receive_maximum=receive_maximum or 100, max_packet_bytes=max_packet_bytes
        ),
        **_common(common),
    )
    _serve(kafka, settings, health_port, health_host, dry_run=common["dry_run"])


@bridge.command()
@click.option("--connect", required=True, metavar="URL", help=f"amqp://user@host/vhost. Password: {_PASSWORD}.")
@click.option("--queue", required=True, multiple=True, help="A queue; may be repeated.")
@click.option(
    "--prefetch",
    type=click.IntRange(1, 65_535),
    default=1_000,
    show_default=True,
    help="Messages of a queue that are not acknowledged.",
)
@_maps
@reaches_a_cluster
@takes_settings_of("producer")
@serves_health
def amqp(
    kafka: Settings,
    connect: str,
    queue: tuple[str, ...],
    prefetch: int,
    health_port: int | None,
    health_host: str,
    **common: Any,
) -> None:
    """Consume queues of RabbitMQ (AMQP 0-9-1) until SIGTERM or Ctrl-C. Needs ottla[amqp].

    Rules match routing keys, with a slash for each dot: order/#.

    \b
    Example:
      ottla bridge amqp --connect amqp://rabbit/shop --queue orders --mapping bridge.toml
    """
    from ottla.bridge import AmqpSource, BridgeSettings, source_url

    url = source_url(connect, kind="amqp", password=os.environ.get(_PASSWORD))
    queues = [AmqpSource(url=url, queue=name, prefetch=prefetch) for name in queue]
    settings = BridgeSettings(queues=queues, **_common(common))
    _serve(kafka, settings, health_port, health_host, dry_run=common["dry_run"])


def find_serde(name: str) -> Any:
    """Return the object that `module:name` of a mapping file names. Raises `ConfigError`."""
    module, attribute = import_target(name, wanted="MODULE:SERDE", example='value = "shop.model:reading"')
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(f"{name}: module {module.__name__!r} has no attribute {attribute!r}")
    return found


def _common(options: dict[str, Any]) -> dict[str, Any]:
    from ottla.bridge.mapping.mapping_file import rule_of_option

    chosen = {name: value for name, value in options.items() if name not in ("maps", "dry_run")}
    return {**chosen, "rules": [rule_of_option(text) for text in options["maps"]], "find_serde": find_serde}


def _serve(
    kafka: Settings, settings: BridgeSettings, health_port: int | None, health_host: str, *, dry_run: bool
) -> None:
    if dry_run:
        _print_records(settings)
        return
    from ottla.bridge import Bridge

    made = Bridge(kafka["bootstrap.servers"], settings, kafka=client_settings(kafka))
    check_reachable(kafka)
    _raise_file_limit(settings.max_connections)
    with telemetry_and_health("ottla-bridge", made.health, health_host, health_port):
        before = signal.signal(signal.SIGHUP, lambda *_: made.reload())
        try:
            with stopped_by_signals(made.stop):
                click.echo("ottla: bridging; Ctrl-C or SIGTERM stops it, SIGHUP reads the mapping again", err=True)
                made.run()
        finally:
            signal.signal(signal.SIGHUP, before)


def _print_records(settings: BridgeSettings) -> None:
    """Print what each line of standard input becomes, as JSON."""
    from ottla.bridge.inbound_message import Message
    from ottla.bridge.mapping.rules import Refusal, TopicMapping
    from ottla.clock import SystemClock
    from ottla.topics import text_problem

    header = "amqp-routing-key" if settings.queues else "mqtt-topic"
    mapping = TopicMapping(settings.mapping().rules, topic_header=header)
    for line in _lines(settings.limits.max_packet_bytes):
        if line is None:
            text = f"a line of more than {settings.limits.max_packet_bytes:,} bytes"
            click.echo(json.dumps({"refused": text, "kind": "invalid"}))
            continue
        name, _, payload = line.rstrip(b"\r\n").partition(b" ")
        if not name:
            continue
        topic = name.decode("utf-8", "surrogateescape")
        if (problem := text_problem(topic)) is not None:
            click.echo(json.dumps({"refused": f"topic: {problem}", "kind": "invalid"}))
            continue
        message = Message(topic, payload, client_id="CLIENT", user="USER")
        target = mapping.target_of(message)
        found = target if isinstance(target, Refusal) else mapping.record_of(message, target, SystemClock().now_ms())
        if isinstance(found, Refusal):
            shown: dict[str, Any] = {"refused": found.text, "kind": found.kind}
        else:
            shown = {
                "topic": found.topic,
                "key": None if found.key is None else found.key.decode("utf-8", "replace"),
                "value": found.value.decode("utf-8", "replace"),
                "headers": {name: (value or b"").decode("utf-8", "replace") for name, value in found.headers},
            }
        click.echo(json.dumps(shown, ensure_ascii=False))


def _lines(most_bytes: int) -> Iterator[bytes | None]:
    """Yield the lines of standard input, and None for one that is too long. A payload is bytes, whatever the
    terminal's encoding."""
    source = sys.stdin.buffer
    while line := source.readline(most_bytes + 1):
        if len(line) <= most_bytes:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = source.readline(most_bytes)
        yield None


def _raise_file_limit(connections: int) -> None:
    """Allow this process as many open files as it has connections, as far as the hard limit lets it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 1_000
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
