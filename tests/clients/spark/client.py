"""Spark's own Kafka connector, `format("kafka")`: a batch read, and a stream from a topic to a folder and to a topic.

    client.py JARS batch BOOTSTRAP TOPIC
    client.py JARS stream BOOTSTRAP TOPIC OUT FOLDER ROWS_A_BATCH

Prints one line per event, words between tabs, and goes on or stops when it is told by a line on its standard input, as
the other programs of this folder. Both read what is committed, and say what they got (`row PARTITION OFFSET KEY HEADER
VALUE`) and that they are through (`closed`).

`batch`: the partitions one after another. At the first row it waits to be told (`half PARTITION`).

`stream`: one query writes files into the folder, where each row is once; another writes to the other topic, where it is
at least once (`PARTITION:OFFSET:VALUE`). `jvm PID`, `batch QUERY NUMBER` for each micro-batch that had rows. When told,
it does what there is still to do, and reads the files.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

for name in ("SPARK_HOME", "PYSPARK_PYTHON"):  # they would lead to another PySpark
    os.environ.pop(name, None)

import ottla.spark  # noqa: E402

POLL_S = 0.05
COLUMNS = (
    "partition",
    "offset",
    "CAST(key AS STRING) AS key",
    "CAST(headers[0].value AS STRING) AS header",
    "CAST(value AS STRING) AS value",
)


def say(*words: object) -> None:
    print(*words, sep="\t", flush=True)


def source(reader: Any, bootstrap: str, topic: str, **more: object) -> Any:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": True,
        "kafka.isolation.level": "read_committed",
        **more,
    }
    return reader.format("kafka").options(**options).load().selectExpr(*COLUMNS)


def say_row(row: Any) -> None:
    say("row", row.partition, row.offset, row.key, row.header, row.value)


def batch(spark: Any, bootstrap: str, topic: str) -> None:
    is_half = False
    for row in source(spark.read, bootstrap, topic).toLocalIterator():
        if not is_half:
            say("half", row.partition)
            sys.stdin.readline()
            is_half = True
        say_row(row)


def stream(spark: Any, bootstrap: str, topic: str, out: str, folder: str, rows: str) -> None:
    read = source(spark.readStream, bootstrap, topic, maxOffsetsPerTrigger=rows)
    to_files = read.writeStream.queryName("files").format("json").option("path", f"{folder}/rows")
    copied = read.selectExpr("key", "CONCAT_WS(':', partition, offset, value) AS value")
    to_topic = copied.writeStream.queryName("topic").format("kafka").option("topic", out)
    to_topic = to_topic.option("kafka.bootstrap.servers", bootstrap)
    queries = [
        each.option("checkpointLocation", f"{folder}/checkpoint-{number}").start()
        for number, each in enumerate((to_files, to_topic))
    ]
    say("jvm", spark._jvm.java.lang.ProcessHandle.current().pid())
    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
    said = {query.name: -1 for query in queries}
    while not told.is_set():
        for query in queries:
            if not query.isActive:
                raise SystemExit(f"query {query.name} ended: {query.exception()}")
            for progress in query.recentProgress:
                if progress["numInputRows"] and progress["batchId"] > said[query.name]:
                    said[query.name] = progress["batchId"]
                    say("batch", query.name, progress["batchId"])
        time.sleep(POLL_S)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    for row in spark.read.json(f"{folder}/rows").collect():
        say_row(row)


def main() -> None:
    jars, command, *arguments = sys.argv[1:]
    spark = ottla.spark.session("connector", master="local[2]", config={"spark.jars": jars}, log_level="ERROR")
    {"batch": batch, "stream": stream}[command](spark, *arguments)
    say("closed")
    spark.stop()


if __name__ == "__main__":
    main()
