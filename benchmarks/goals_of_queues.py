"""Goals of queues on share groups, and the names of what `queues.py` measures."""

from __future__ import annotations

from judging import Wanted

KAFKA, KFAKE = "Apache Kafka", "kfake"
PREVIEW, PLAIN = "share consumer of confluent-kafka (preview)", "consumer of confluent-kafka, settles nothing"
PREVIEW_BY_JOB = f"{PREVIEW}, job by job"
THREADS, ASYNCIO, LOOP = "an empty handler, in threads", "an empty handler, on asyncio", "a loop that accepts each"
BY_MEMBERS = "members of one partition, the same client: {}"
MEMBERS = (1, 10, 100)
SHARE_FETCH = "librdkafka's share consumer, one member"
KILL = "kill -9 until another member has a job"

_ONE_PROCESS = (
    "All members are `Queue`s of one Python process, which is the limit for either broker. On the same machine the "
    "process of a JVM has the other core."
)
_FETCHES = (
    "A leader lends at most 2,000 records of a partition at a time (`group.share.partition.max.record.locks`), the "
    "share consumer acknowledges what it took and waits for the answer, and the broker writes the outcome to "
    "`__share_group_state` before it answers. The plain consumer fetches ahead without a wait: most of its jobs are in "
    "its buffer when its clock starts. Taking and acknowledging a job costs the share consumer 0.8 µs in the client "
    "alone, more than the plain consumer needs for two."
)


def _queues(what: str, figure: float, unit: str, *, peer: str = "", why: str = "") -> Wanted:
    return Wanted(area="queues", part="queues", what=what, figure=figure, unit=unit, peer=peer, why=why)


QUEUES: tuple[Wanted, ...] = (
    _queues(THREADS, 3, "jobs/s", peer=PREVIEW_BY_JOB),
    _queues(SHARE_FETCH, 0.5, "jobs/s", peer=PLAIN, why=_FETCHES),
    *(_queues(BY_MEMBERS.format(count), 1, "jobs/s", peer=KAFKA, why=_ONE_PROCESS) for count in MEMBERS),
    _queues(KILL, 100, "ms"),
)
