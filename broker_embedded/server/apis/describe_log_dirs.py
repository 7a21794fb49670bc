"""DescribeLogDirs (key 35), versions 1-5: sizes of the logs on this broker, per log directory.

A copy of a log that is being moved to a directory is listed there as "future", with its offset lag. A directory is
cordoned if `cordoned.log.dirs` names it and metadata.version is at least 4.3-IV0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker_embedded.common.types import TopicPartition
from broker_embedded.controller.features import has_cordoned_log_dirs
from broker_embedded.server.requests.context import Body, RequestContext, Response
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_dirs import LogDirView
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.requests.services import HasLogs, HasMetadata, HasReplicas

    class Needs(HasReplicas, HasLogs, HasMetadata, Protocol): ...


Wanted = set[TopicPartition] | None


def handle(ctx: RequestContext[Needs], request: Message) -> Response:
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    return {
        "error_code": 0,
        "results": [_directory(ctx, view, wanted) for view in ctx.services.logs.directories.describe()],
    }


def _directory(ctx: RequestContext[Needs], view: LogDirView, wanted: Wanted) -> Body:
    topics: dict[str, list[Body]] = {}
    for log in view.logs:
        key = TopicPartition(log.topic, log.partition)
        if (wanted is None or key in wanted) and ctx.services.replicas.partition(key) is not None:
            topics.setdefault(log.topic, []).append(_partition(log))
    for future in view.futures:
        key = TopicPartition(future.topic, future.partition)
        replica = ctx.services.replicas.partition(key)
        if (wanted is None or key in wanted) and replica is not None:
            lag = replica.log.log_end_offset - future.log_end_offset
            copy = {**_partition(future), "offset_lag": max(lag, 0), "is_future_key": True}
            topics.setdefault(future.topic, []).append(copy)
    return {
        "error_code": int(ErrorCode.NONE if view.offline_reason is None else ErrorCode.KAFKA_STORAGE_ERROR),
        "log_dir": view.path,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
        "total_bytes": view.total_bytes,
        "usable_bytes": view.usable_bytes,
        "is_cordoned": view.path in ctx.services.logs.directories.cordoned
        and has_cordoned_log_dirs(ctx.services.metadata.image),
    }


def _partition(log: Log) -> Body:
    return {
        "partition_index": log.partition,
        "partition_size": log.size_bytes(),
        "offset_lag": max(log.high_watermark - log.log_end_offset, 0),
        "is_future_key": False,
    }
