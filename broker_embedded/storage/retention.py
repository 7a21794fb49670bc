"""Which segments a log may drop: pure policy, oldest first, until one must stay."""

from __future__ import annotations

from collections.abc import Sequence

from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.storage.segment import LogSegment
from broker_embedded.storage.segments import Segments


def segments_to_delete(
    segments: Segments,
    *,
    config: TopicConfig,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> Sequence[LogSegment]:
    """Return the oldest segments that exceed retention.ms or retention.bytes, or lie below the log start offset.

    Segments with a record at or above the high watermark and an empty active segment stay. retention.bytes counts the
    whole partition: a segment is dropped only if the remaining ones still have at least that size.
    """
    doomed: list[LogSegment] = []
    excess_bytes = segments.size_bytes() - config.retention_bytes if config.retention_bytes >= 0 else 0
    for segment in segments:
        is_active = segment is segments.active
        end_offset = log_end_offset if is_active else segments.next_base_offset(segment)
        assert end_offset is not None
        is_replicated = end_offset <= high_watermark
        if not is_replicated or (is_active and segment.size == 0):
            break
        is_below_start = not is_active and end_offset <= log_start_offset
        is_excess = (
            config.deletes_old_segments
            and config.retention_bytes >= 0
            and excess_bytes >= segment.size
            and segment.size > 0
        )
        is_old = (
            config.deletes_old_segments
            and config.retention_ms >= 0
            and now_ms - segment.largest_timestamp_ms > config.retention_ms
        )
        if not (is_below_start or is_excess or is_old):
            break
        excess_bytes -= segment.size
        doomed.append(segment)
    return doomed
