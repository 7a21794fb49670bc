"""`ottla run module:app`: run a service from the command line, in threads or on an event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from ottla.app import App
from ottla.app.app import use_address
from ottla.app.runtime.stop_signals import HANDLER_THREADS
from ottla.cli.shared.parameter_types import Seconds
from ottla.cli.shared.serving import health_server, serves_health, workers_server
from ottla.cli.shared.signals import ignore_sigint, leave_signals_to_service
from ottla.cli.shared.streams import as_they_were
from ottla.cli.shared.target import import_target, names_of
from ottla.config.chosen_address import given_on_command_line
from ottla.config.worker_names import number_of_worker
from ottla.errors import ConfigError
from ottla.processes.worker_link import LINK_VARIABLE, RELOAD_VARIABLE
from ottla.telemetry.logs.log_lines import LEVELS, Format
from ottla.telemetry.logs.log_sink import configure_program
from ottla.telemetry.sdk_setup import Telemetry, is_asked_for

_LONGEST_IMPORT_S: Final = 300.0


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "-b",
    "--bootstrap-servers",
    help="Bootstrap servers, used instead of the app's own and of OTTLA_BOOTSTRAP_SERVERS in the environment.",
)
@click.option("--asyncio", "on_event_loop", is_flag=True, help="Handle records on an event loop instead of in threads.")
@serves_health
@click.option(
    "--console-port",
    type=click.IntRange(0, 65_535),
    help="Serve a page of the service's health on this port of 127.0.0.1; needs ottla[console].",
)
@click.option("--console-write", is_flag=True, help="The page may pause and resume partitions.")
@click.option(
    "--start-timeout",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="Seconds to wait for a broker (10 unless the app says otherwise; 0: fail at once).",
)
@click.option(
    "--topics-timeout",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="Seconds to wait for topics that do not exist yet (3 unless the app says otherwise).",
)
@click.option("--reload", "reloads", is_flag=True, help="Start the service again when a Python file changes.")
@click.option(
    "--reload-dir",
    "reload_dirs",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Watch this folder for --reload instead of the current one; may be repeated.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Run the service in N processes, each a member of the group.",
)
@click.option(
    "--hung-after",
    "hung_after_s",
    type=Seconds(min=1),
    metavar="SECONDS",
    help="Replace a worker whose handler has been with one record for so long, or that does not report (5 times the"
    " app's unready_after_s unless given).",
)
@click.option("--create-topics", is_flag=True, help="Create missing topics with the cluster's defaults.")
@click.option(
    "--log-level",
    type=click.Choice(list(LEVELS)),
    default="info",
    show_default=True,
    envvar="OTTLA_LOG_LEVEL",
    help="Log Ottla's events from this level on.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    default="auto",
    show_default=True,
    envvar="OTTLA_LOG_FORMAT",
    help="Log lines of JSON or of text. auto: text on a terminal, else JSON.",
)
@click.option(
    "--otel",
    "exports",
    is_flag=True,
    help="Export traces and metrics as OpenTelemetry's OTEL_* variables say. Setting these has the same effect.",
)
def run(
    target: str,
    bootstrap_servers: str | None,
    on_event_loop: bool,
    health_port: int | None,
    health_host: str,
    console_port: int | None,
    console_write: bool,
    start_timeout: float | None,
    topics_timeout: float | None,
    reloads: bool,
    reload_dirs: tuple[Path, ...],
    workers: int | None,
    hung_after_s: float | None,
    create_topics: bool,
    log_level: str,
    log_format: Format,
    exports: bool,
) -> None:
    """Run the App named APP in MODULE until SIGTERM or Ctrl-C, then drain, commit and leave the group.

    \b
    Examples:
      ottla run billing:app
      ottla run billing:app --asyncio --health-port 8080
      ottla run billing:app --reload
      ottla run billing:app --workers 4 --health-port 8080
    """
    if workers is not None and (reloads or reload_dirs):
        raise ConfigError("--workers: found with --reload, which runs one process; wanted one of the two")
    if workers is not None and console_port is not None:
        raise ConfigError("--workers: found with --console-port, whose page is of one process; wanted --health-port")
    if bootstrap_servers is not None:  # before the module makes producers of its own that name no address
        given_on_command_line(bootstrap_servers, os.environ)
    if reloads or reload_dirs:
        raise SystemExit(_reload(sys.argv[1:], reload_dirs))
    if workers is not None:
        configure_program(level=log_level, format=log_format)
        raise SystemExit(_supervise(sys.argv[1:], workers, hung_after_s, health_host, health_port))
    worker = _worker()
    configure_program(level=log_level, format=log_format, worker=None if worker is None else number_of_worker())
    if hung_after_s is not None and worker is None:
        raise ConfigError("--hung-after: found without --workers, wanted both")
    with contextlib.nullcontext() if worker is None else worker.reporting_refusals():
        reloaded = _reloaded("ottla.aio.serve.runner" if on_event_loop else "ottla.sync.serve.runner")
        app = load_app(target)
        if reloaded is not None:
            _obey(reloaded, app)
        if bootstrap_servers is not None:
            use_address(app, bootstrap_servers)
        if start_timeout is not None:
            app.start_timeout_s = start_timeout
        if topics_timeout is not None:
            app.topics_timeout_s = topics_timeout
        if create_topics and not app.create_topics:
            app.create_topics = True
        telemetry = Telemetry()
        telemetry.set_up(service=app.group, exports=exports or is_asked_for(), scraped=health_port is not None)
        server = console = None
        if worker is not None:
            worker.loaded(app, hung_after_s=hung_after_s)
        else:
            click.echo(f"ottla: running {target} as group {app.group!r}; Ctrl-C or SIGTERM stops it", err=True)
            server = None if health_port is None else health_server(app.health, health_host, health_port)
        if console_port is not None:
            console = _console(app, console_port, may_write=console_write, on_event_loop=on_event_loop)
        if worker is not None or reloaded is not None:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # for what the service starts
        as_they_were()
        leave_signals_to_service()
        try:
            if on_event_loop:
                asyncio.run(app.serve(handle_signals=True))
                _leave_handlers_behind()
            else:
                app.run()
        finally:
            if console is not None:
                console.close()
            if server is not None:
                server.close()
            telemetry.close()


def _reload(arguments: Sequence[str], folders: Sequence[Path]) -> int:
    """Run the same command without `--reload` in a process that is started again at each change."""
    from ottla.cli.services.reload import Reloader

    leave_signals_to_service()
    command = _command(_without(_without(arguments, "--reload"), "--reload-dir", takes_value=True))
    return Reloader(command, folders or [Path.cwd()]).run()


def _supervise(
    arguments: Sequence[str], count: int, hung_after_s: float | None, health_host: str, health_port: int | None
) -> int:
    """Run the same command without `--workers` in several processes."""
    from ottla.cli.services.workers import Workers

    leave_signals_to_service()
    limit_s = _LONGEST_IMPORT_S if hung_after_s is None else hung_after_s
    workers = Workers(_command(_without(arguments, "--workers", takes_value=True)), count, loading_limit_s=limit_s)
    server = None if health_port is None else workers_server(workers.body, workers.scrape, health_host, health_port)
    try:
        return workers.run()
    finally:
        if server is not None:
            server.close()


def _worker() -> Any:
    """Return the worker that this process is; None unless a supervisor has started it."""
    if LINK_VARIABLE not in os.environ:
        return None
    ignore_sigint()  # its supervisor orders it to stop
    return importlib.import_module("ottla.cli.services.worker").Worker.of_environment(os.environ)


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "ottla", *arguments]


def _without(arguments: Sequence[str], option: str, *, takes_value: bool = False) -> list[str]:
    """Return the arguments without an option and its value."""
    kept: list[str] = []
    is_value = False
    for argument in arguments:
        if is_value or argument == option or argument.startswith(f"{option}="):
            is_value = argument == option and takes_value and not is_value
        else:
            kept.append(argument)
    return kept


def _reloaded(runner: str) -> Any:
    """Return the orders of `--reload` to this process, when it is to run the service; None if it has not started it.
    Meanwhile all but the service is loaded."""
    if RELOAD_VARIABLE not in os.environ:
        return None
    ignore_sigint()  # its parent orders it to stop
    orders = importlib.import_module("ottla.cli.services.orders")
    importlib.import_module(runner)
    return orders.of_reloader(os.environ)


def _obey(orders: Any, app: App) -> None:
    """Stop the app when `--reload` orders it. It leaves its group at each end: as a static member it would keep its
    place for a session, and have the id of the one that it is a copy of."""
    app.settings.pop("group.instance.id", None)
    orders.obey_for(app)


def _leave_handlers_behind() -> None:
    """End the process although a synchronous handler has not returned: Python would wait for its thread."""
    if not any(thread.name.startswith(HANDLER_THREADS) for thread in threading.enumerate()):
        return
    click.echo("ottla: a handler has not returned in time, and is abandoned; its records are delivered again", err=True)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)


def load_app(target: str) -> App:
    """Return the app that ``module:attribute`` names, or a ConfigError that says which part of it was not found."""
    module, attribute = import_target(target, wanted="MODULE:APP", example="ottla run billing.service:app")
    found = getattr(module, attribute, None)
    if found is None:
        apps = names_of(module, App)
        hint = f"; it has {', '.join(apps)}" if apps else ""
        raise ConfigError(f"{target}: module {module.__name__!r} has no attribute {attribute!r}{hint}")
    if not isinstance(found, App):
        raise ConfigError(f"{target}: {attribute!r} is a {type(found).__name__}, wanted an ottla App")
    return found


def _console(app: App, port: int, *, may_write: bool, on_event_loop: bool) -> Any:
    """Return the page of the app's health. It stands above the command line, so it is found by its name, as commands
    are."""
    start = importlib.import_module("ottla.console.service").start_console
    token = os.environ.get("OTTLA_CONSOLE_TOKEN")
    console, address = start(
        app, host="127.0.0.1", port=port, token=token, may_write=may_write, on_event_loop=on_event_loop
    )
    click.echo(f"ottla: console at {address}", err=True)
    return console
