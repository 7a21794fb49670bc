"""Shared by commands that run until they are stopped: health options and signals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from ottla.cli.shared.options import takes
from ottla.cli.shared.signals import handled_signals
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from ottla.consumer.readiness.health import Health
    from ottla.sync.serve.health_http import HealthServer
    from ottla.sync.serve.small_http import SmallServer

S = TypeVar("S", bound="_Listening")


class _Listening(Protocol):
    port: int


serves_health: Final = takes(
    click.option(
        "--health-port",
        type=click.IntRange(0, 65_535),
        help="Serve /health/live, /health/ready and /metrics on this port.",
    ),
    click.option(
        "--health-host",
        default="127.0.0.1",
        show_default=True,
        help="Serve them on this address."
        " In Kubernetes 0.0.0.0: the kubelet probes the pod's own address, not loopback.",
    ),
)
"""`--health-port` and `--health-host`, as `health_port` and `health_host`."""


def health_server(health: Callable[[], Health], host: str, port: int) -> HealthServer:
    """Serve the health and the metrics of this process, and say where. ConfigError where nothing can listen."""
    from ottla.sync.serve.health_http import HealthServer

    return _listening(lambda: HealthServer(health, host=host, port=port), host, port)


@contextmanager
def telemetry_and_health(service: str, health: Callable[[], Health], host: str, port: int | None) -> Iterator[None]:
    """Set up the telemetry that the environment asks for, and serve health and metrics on a port if one is given, as
    long as the block lasts. ConfigError where nothing can listen there."""
    from ottla.telemetry.sdk_setup import Telemetry, is_asked_for

    telemetry = Telemetry()
    telemetry.set_up(service=service, exports=is_asked_for(), scraped=port is not None)
    server = None if port is None else health_server(health, host, port)
    try:
        yield
    finally:
        if server is not None:
            server.close()
        telemetry.close()


def workers_server(
    body: Callable[[], dict[str, Any]], scrape: Callable[[], tuple[str, bytes] | None], host: str, port: int
) -> SmallServer:
    """Serve the merged health and metrics of worker processes likewise."""
    from ottla.app.runtime.health_paths import answer_of
    from ottla.sync.serve.small_http import HttpAnswer, SmallServer

    def respond(path: str) -> HttpAnswer:
        if path.split("?")[0].rstrip("/") == "/metrics" and (scraped := scrape()) is not None:
            return HttpAnswer(200, *scraped)
        status, answer = answer_of(body(), path)
        return HttpAnswer(status, "application/json", json.dumps(answer).encode())

    return _listening(lambda: SmallServer(respond, host=host, port=port, name="ottla-health"), host, port)


def _listening(listen: Callable[[], S], host: str, port: int) -> S:
    try:
        server = listen()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--health-host {host} --health-port {port}: cannot listen there: {error}") from error
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"ottla: health at http://{shown}:{server.port}/health/ready", err=True)
    return server


def stopped_by_signals(stop: Callable[[], None]) -> AbstractContextManager[None]:
    """Call `stop` at SIGTERM and Ctrl-C inside the block."""
    return handled_signals(lambda _: stop())
