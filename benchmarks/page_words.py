"""The text of each section of the page: what was measured, and how."""

from __future__ import annotations

SOAK = """\
`tools/run soak`: an embedded cluster of three brokers with three replicas, the demo's flights as load, and two members
of the demo's handler service. A seed chooses the faults: connections are cut, blocked in one direction or stalled,
members are killed and replaced, and the leading broker is killed. At the end everything is read back: each flight that
was sent must be handled, or be a dead letter with the reason that was expected. Memory and descriptors of each process
that runs from the beginning to the end must be flat, by the median of all slopes after the first third. A line per
interval shows the memory and open descriptors of each process, and the records handled, dead-lettered and behind, and
the faults so far. The exit code is 0 only if all is flat and nothing is lost. The same seed repeats the faults:
`tools/run soak --minutes 30 --seed 7`.

The known growth is small: every node keeps its metadata log in memory (the quorum takes no snapshots yet), and
each broker that dies and returns adds some tens of KB to it. Without faults the cluster grows by 1 to 2 bytes a record.
"""

HOT_PATHS = """\
`make bench ONLY=hot_paths`: CPU time per record, of all threads of the process, beside a loop that does the same work
on the client alone. Each contender has a process of its own, and all take turns. `+h` marks records with two headers.
The longest pause is the longest garbage collection, during which all threads stop.

Seven rounds for the rows that decode a dataclass or send, measured on 2026-11-28 while other programs ran at times (a
load of 2). Five rounds for the others, on a machine with nothing else to do. While other programs keep both CPUs busy,
the ratios of handlers are lower by up to a half, because the client's own threads then wait as well.
"""

INSTRUCTIONS = """\
`python benchmarks/instructions.py`: instructions that the broker executes for one request, in user mode, counted by
valgrind's cachegrind. Other programs of the machine hardly change the count.
"""

TELEMETRY = """\
`make bench ONLY=telemetry`: handlers that only count, and `send`, each in a process of its own: where `opentelemetry`
cannot be imported, with the API alone, with the SDK, all metrics and 1 % of traces, and with every span. An exporter
drops what it gets, so the service is measured. CPU is the process's own, of all its threads: on few cores the rate says
as well how client and broker share them. The last rows are what recording every span adds, beside the instrumentors of
the raw clients around the same work. [How to observe](how-to/observe.md) has what is recorded.
"""

MESSAGING = """\
`make bench ONLY=messaging`: [delayed messages](how-to/delayed-messages.md) beside plain sends of the same records, how
fast one scheduler hands out what is due, and how late messages come that are due within three seconds. A start counts
until a scheduler has all slots, has read what is open and has delivered what is due; its memory is what it has more
than one with nothing scheduled. [Retry topics](how-to/retry-topics.md) get 300 records/s of 40 keys for ten seconds,
from one broker and from three that replicate, and 3 % of the deliveries fail. Their delays are 0.3 and 2 s; the goal is
that all records are handled within twice the sum of the delays. Then [priorities](how-to/priorities.md): what an urgent
record waits beside a million bulk records, and a backlog of three priorities beside the same topics without them, with
a handler that takes 20 µs.
[RabbitMQ](migration/rabbitmq.md) does the same once, where Debian's package and pika are, with a smaller backlog: a
durable classic queue with `x-max-priority`, persistent messages, each acknowledged, 50 handed out ahead. It promises
that what was not acknowledged comes again, and that the highest priority goes first as long as it has any: the others
have no share meanwhile. It discards what is expired at the head of the queue; what the client has already is handed out
however old. Last, what a handler of 10 ms is given of 100 records with 0.2 s to live, and 20 ms more for the clocks.
What sends and handlers cost that use none of this is measured against an older checkout, by
`python benchmarks/messaging.py --part unused --against SRC`.
"""

QUEUES = """\
`make bench ONLY=queues`: [queues](how-to/queues.md) on share groups, jobs of 100 bytes from one partition of a broker
in a process of its own. A handler of `@app.queue` that only counts, with a concurrency of 64, and a loop over `Queue`
that accepts each job. Beside them librdkafka's share consumer (a preview), with explicit acknowledgements, and its
plain consumer, which settles nothing. The preview leases whole batches, here of a thousand jobs and more, and
acknowledges each as one range; *job by job* its loop commits each acknowledgement before the next job, so that a kill
repeats one job and not a batch. Both loops call an empty function with each value. A queue leases what its workers can
begin soon, renews each lease, and settles each job when it is done. CPU is the client's process. The rows of 1, 10 and
100 members compare the embedded broker with Apache Kafka's and with kfake, which keeps leases and outcomes in memory
alone: all members are `Queue`s of one process, which is the limit of ten and more. The row of librdkafka's share
consumer has 150,000 jobs: its plain consumer has most of them in its buffer when it hands out the first. Of a million
jobs the ratio was 3.6 to 4.6, because the plain consumer pauses for a second while its buffer is full; without that
pause (`fetch.queue.backoff.ms=0`) it was 0.30 to 0.43.
"""

HANDLER_COSTS = """\
`make bench ONLY=handler_costs`: [`max_rate`](how-to/rate-limits.md) and [event types](how-to/event-types.md) without a
broker: the session hands out 512 records, their handler does nothing, and the session settles them. *Adds* is CPU time
above the same handler without it, in turns within one process. There are two types in turn, the most expensive case:
for a run of one type the handler is chosen once. A *plain handler* uses neither. Its instructions for a record are
counted by valgrind's cachegrind beside the last commit that had neither, and have in them whatever else came since.
"""

WORKERS = """\
`make bench ONLY=workers`: [`ottla run --workers`](how-to/worker-processes.md) with a handler that computes for about a
millisecond, in Python. Time counts from the first record handled to the last; all partitions are assigned before the
first is sent. CPU is measured in the workers' processes. On a busy machine, start the program with
`chrt -r 1`: it and its child processes then run before other programs. These figures were measured that way.
"""

ONCE = """\
`make bench ONLY=once`: runs of 128 records are handed to a handler as a worker does it, without a broker, so the
figures are the cost of the store and of Ottla. *An inbox adds* is the cost of the inbox without the handler. *By hand*
is a transaction per record with an `insert ... on conflict` for the message and an insert for the work. PostgreSQL has
`fsync` on. CPU is this process's own. [Effectively once](how-to/effectively-once.md) has the ways to count once.
"""

EXACTLY_ONCE = """\
`make bench ONLY=once`: each record is read from a topic of four partitions and written to another. Time counts from the
first record until the group has committed all of them. A member commits the runs of all its partitions with one
producer, and one for each partition commits the same beside it.
[Effectively once](how-to/exactly-once.md) has the handler.
"""

OUTBOX = """\
`make bench ONLY=once`: rows are added in transactions of 100, and a relay sends them to a topic of four partitions.
Time counts from its start until the table is empty. The loop sends 500 rows in a transaction, flushes and deletes them;
it keeps no order when a record fails and knows no other relay. PostgreSQL has `fsync` on.
[Send from a database transaction](how-to/outbox.md) has the outbox.
"""

COLUMNS = """\
`make bench ONLY=columns`: [handlers of columns](how-to/columns.md) beside batch handlers on threads and a plain
`consume(10000)` loop that reads key and value of each record, and decodes them with fastavro or orjson where the row
says so. All commit at least once. Time counts from the first batch; CPU is the process's own, of all its threads, from
its start.

*Topic to topic* copies key and value of each record into another topic: a handler that returns its batch, a loop that
makes a transaction of each `consume(10000)`, and Quix Streams. Time counts from the first record until the group has
committed all of them. The *most memory* of a slow handler is what the resident set of its process grows by from the
first record on, and *most in the buffers* is what they hold by their own account. Both are divided by the
`total_bytes` of the default `FlowLimits`.
"""

BRIDGE = """\
`make bench ONLY=bridge`: [MQTT and AMQP into Kafka](how-to/bridge.md), 100 B at QoS 1, each message in the embedded
broker with acks=all before it is acknowledged. A CPU second is one of the bridge's process, all of its threads: the
publishers and the broker run on the same CPUs. 1,000 connections keep 20 messages each in flight. Mosquitto beside it
acknowledges the same publishers and keeps nothing, and pika takes the messages of the queue, acknowledges a hundred at
a time and keeps nothing. By the clock RabbitMQ shares the CPUs with both, and its shovel, which has no road to Kafka,
moves the messages to another of its queues and confirms them. FastStream runs 50 handlers side by side that publish to
Kafka. Memory is what 10,000 connections add that send nothing. For the wait, publishers, bridge and broker are
scheduled before the machine's other processes (SCHED_RR); the row below is without that.
"""

PLANNER = """\
`python benchmarks/planner.py`: plans of `ottla plan` for random clusters of 6 to 40 brokers with 1 to 4 racks, grown or
shrunk, a third of them with disks of two sizes. Beside them stands what `kafka-reassign-partitions --generate` of Kafka
4 proposes: it places every replica again, by number alone. *Can be reached* is the lowest level that a placement can
have. *The least* is what must move: what is on brokers that go, and what is above the limit of the others. The run is
on an embedded cluster: a fourth broker joins, and is filled with 180 MB under a throttle of 10 MB/s. What the throttle
lets pass at once is counted.
"""

CONNECTOR = """\
`make bench ONLY=connector`: both sources take turns in one session of Spark, on the embedded broker and on Apache
Kafka. *Tuned* is the connector with `kafka.max.poll.records=50000` and `kafka.fetch.max.wait.ms=10`, as a careful user
sets them: with its defaults a task can wait half a second for a fetch that does not fill up. Many small partitions have
500 records each. CPU is the sum of the JVM and the Python workers; both sources get cheaper while the JVM compiles, so
each runs once before the counted rounds.

Three rounds for the rows *Kafka to Spark to Kafka*, measured on 2026-11-28 12:08 UTC at a load of 2 to 4. Two rounds
for the others, at a load of 12.7 and without the uncounted run before them.
"""

SPARK_STATE = """\
`make bench ONLY=spark_costs`: 0.1 and 1 million keys that come once each, in a session of `ottla.spark.session`
(RocksDB, 4 shuffle partitions). A join reads twice as many rows. *State* is what Spark reports for its operators, *JVM*
the most resident memory of the JVM, and *restart* a new process that continues from the checkpoint with 100 more
records. CPU is the sum of the JVM and the Python workers; times depend on what else the machine does.
"""

SPARK_READING = """\
`make bench ONLY=spark_costs`. First a part of a topic, by [`read(where=...)`](how-to/spark.md#read) and by `where()` of
the whole DataFrame. Then budgets: 200,000 records of 100 bytes and behind them 4,000 of 10,000 bytes.
`maxBytesPerTrigger` takes the size of the records that come next for all of a micro-batch, so the one in which records
get a hundred times larger is larger than the budget. Last a burst: one partition of eight gets ten times what a
micro-batch takes, and the others 500 records each; *others* are those. Memory is what the heap holds after a
collection, and the most of any Python worker.
"""

SPARK_BATCHES = """\
`make bench ONLY=spark_costs`. Planning is what Spark asks of a source in each micro-batch, with new records in all
partitions and a budget; CPU time of the source's process, of which half are garbage collections at 10,000 partitions.
The checkpoint: the same micro-batches of 100 rows, with their checkpoint on disk and on moto's S3 beside it. Each
request takes one round trip to the store ([size](how-to/spark-on-a-cluster.md#size)).
"""

SPARK_CLUSTER = """\
`make bench ONLY=spark_costs`: a standalone master, two executors of one core and a driver in processes of their own,
beside `local[2]`, on the same machine and without a network. CPU is that of all processes of Spark.
"""
