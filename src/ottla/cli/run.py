"""`ottla run module:app`: run a service from the command line, in threads or on an event loop."""

from __future__ import annotations

import asyncio

import click

from ottla.app import App
from ottla.cli.target import import_target, names_of
from ottla.errors import ConfigError


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("--bootstrap-servers", envvar="OTTLA_BOOTSTRAP_SERVERS", help="Used when the app does not name its own.")
@click.option("--asyncio", "on_event_loop", is_flag=True, help="Handle records on an event loop instead of in threads.")
@click.option(
    "--health-port", type=click.IntRange(0, 65_535), help="Serve /health/live and /health/ready on this port."
)
@click.option(
    "--start-timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait so long for a broker to listen at the address (10 unless the app says otherwise; 0: not at all).",
)
def run(
    target: str,
    bootstrap_servers: str | None,
    on_event_loop: bool,
    health_port: int | None,
    start_timeout: float | None,
) -> None:
    """Run the App named APP in MODULE until SIGTERM or Ctrl-C, then drain, commit and leave the group."""
    app = load_app(target)
    if bootstrap_servers is not None and app.bootstrap_servers is None:
        app.bootstrap_servers = bootstrap_servers
    if start_timeout is not None:
        app.start_timeout_s = start_timeout
    click.echo(f"ottla: running {target} as group {app.group!r}; Ctrl-C or SIGTERM stops it", err=True)
    if health_port is not None:
        from ottla.sync.health_http import HealthServer

        server = HealthServer(app.health, port=health_port)
        click.echo(f"ottla: health at http://127.0.0.1:{server.port}/health/ready", err=True)
    else:
        server = None
    try:
        if on_event_loop:
            asyncio.run(app.serve(handle_signals=True))
        else:
            app.run()
    finally:
        if server is not None:
            server.close()


def load_app(target: str) -> App:
    """The app that ``module:attribute`` names, or a ConfigError that says which part of it was not found."""
    module, attribute = import_target(target, wanted="MODULE:APP", example="ottla run billing.service:app")
    found = getattr(module, attribute, None)
    if found is None:
        apps = names_of(module, App)
        hint = f"; it has {', '.join(apps)}" if apps else ""
        raise ConfigError(f"{target}: module {module.__name__!r} has no attribute {attribute!r}{hint}")
    if not isinstance(found, App):
        raise ConfigError(f"{target}: {attribute!r} is a {type(found).__name__}, wanted an ottla App")
    return found
