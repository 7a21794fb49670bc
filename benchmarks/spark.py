"""Spark reading and writing Kafka through `format("ottla")`, beside plain confluent-kafka loops without Spark.

    python benchmarks/spark.py [--records 1920000] [--partitions 48] [--rounds 5]

Rows go to Spark's `noop` sink, which does nothing with them, like the plain loop. A broker runs in a child process; the
rounds alternate and the median counts. Goals: batch read 1.5 x the plain consume() loop, micro-batches of 240,000 rows
0.9 x, Kafka to Spark to Kafka 0.7 x the plain produce() loop. Spark's own connector stands beside it in `connector.py`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from columnar import broker_process, create_topics, fill, plain_consume, plain_produce, report, timed
from results import Results
from spark_queries import Queries

import ottla.spark


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--records", type=int, default=1_920_000)
    options.add_argument("--partitions", type=int, default=48)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--per-batch", type=int, default=240_000)
    options.add_argument("--results", type=Path, help="the folder for spark.jsonl")
    chosen = options.parse_args()
    results = Results("spark", chosen.results)
    records, partitions, rounds = chosen.records, chosen.partitions, chosen.rounds
    spark = ottla.spark.session("ottla-benchmark")
    cores = spark.sparkContext.defaultParallelism
    print(f"{records:,} records of 100 bytes, {partitions} partitions, {cores} cores, median of {rounds} rounds")
    scratch = Path(tempfile.mkdtemp(prefix="ottla-benchmark-"))
    with broker_process() as servers:
        create_topics(servers, "big", "out", "plain", partitions=partitions)
        table = fill(servers, "big", partitions=partitions, records=records)
        rows = list(
            zip(table.column("key").to_pylist()[:500_000], table.column("value").to_pylist()[:500_000], strict=True)
        )
        del table
        queries = Queries(spark, servers, scratch)
        read = lambda **more: queries.batch("big", **more)  # noqa: E731
        stream = lambda **more: queries.stream("big", **more)  # noqa: E731

        read()  # the first query of a session pays for the JVM's compiler and for starting workers
        plain = lambda: plain_consume(servers, "big", partitions=partitions, records=records)  # noqa: E731
        few_s, many_s, plain_s = timed(rounds, read, lambda: read(minPartitions=partitions), plain)
        report(results, "batch read, planned tasks", records, few_s, "consume(10000), ignored", plain_s, 1.5)
        report(results, "batch read, a task per partition", records, many_s, "consume(10000), ignored", plain_s, 0.5)
        small_s, one_s, plain_s = timed(
            rounds,
            lambda: stream(maxOffsetsPerTrigger=chosen.per_batch),
            stream,
            plain,
        )
        report(
            results,
            f"stream, {chosen.per_batch:,} rows a batch",
            records,
            small_s,
            "consume(10000), ignored",
            plain_s,
            0.9,
        )
        report(results, "stream, one batch", records, one_s, "consume(10000), ignored", plain_s, 1.5)
        through_s, produce_s = timed(
            rounds, lambda: stream(sink="ottla"), lambda: plain_produce(servers, "plain", rows)
        )
        produce_s = [seconds * records / len(rows) for seconds in produce_s]
        report(results, "Kafka to Spark to Kafka", records, through_s, "produce() loop, no Spark", produce_s, 0.7)

        def trivial_tasks() -> None:
            tasks = spark.range(200, numPartitions=200).mapInArrow(lambda batches: batches, "id long")
            tasks.write.format("noop").mode("overwrite").save()

        (tasks_s,) = timed(rounds, trivial_tasks)
        cost_ms = [seconds / 200 * cores * 1000 for seconds in tasks_s]
        results.add("a trivial Python task", "spark", cost_ms, "ms of a core")
        print(f"a trivial Python task costs {min(cost_ms):.1f} ms of a core")
    results.close()
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
