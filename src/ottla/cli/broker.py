"""`ottla broker start`: the embedded reference broker as a process, for any language.

The same program, options and exit codes as `python -m broker_embedded`, under the name people look for first.
"""

from __future__ import annotations

import click


@click.group()
def broker() -> None:
    """The embedded reference broker: Kafka's wire protocol on loopback, for laptops and tests."""


@broker.command()
@click.option("--brokers", type=click.IntRange(min=1), default=1, show_default=True, help="How many brokers.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="BASE",
    help="Port of the first broker, the others take the ports after it. Any free ports if left out.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    default=None,
    metavar="DIR",
    help="Where logs are kept. A temporary directory, removed at the end, if left out.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A broker setting; may be repeated.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="What goes to stderr.",
)
@click.pass_context
def start(
    ctx: click.Context, brokers: int, port: int, data_dir: str | None, settings: tuple[str, ...], log_level: str
) -> None:
    """Start a cluster in the foreground and print its address.

    When clients can connect, one line goes to stdout. Stop it with Ctrl-C.

    \b
        ready bootstrap=127.0.0.1:PORT[,...]
    """
    from broker_embedded.__main__ import main

    arguments = ["--brokers", str(brokers), "--port", str(port), "--log-level", log_level]
    if data_dir is not None:
        arguments += ["--data-dir", data_dir]
    for setting in settings:
        arguments += ["--set", setting]
    ctx.exit(main(arguments))
