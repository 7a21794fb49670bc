"""Where a share group begins on a partition that it has not read before (`share.auto.offset.reset`)."""

from __future__ import annotations

from broker_embedded.common.iso_duration import duration_ms
from broker_embedded.storage.log import Log


def first_offset(reset: str, log: Log, *, end_offset: int, now_ms: int) -> int:
    """Return the first offset for `earliest`, `latest` or `by_duration:PT1H`.

    `end_offset` is the end of the partition when the group came. A duration begins at the first record that is not
    older; where there is none, at the end.
    """
    if reset == "earliest":
        return log.log_start_offset
    way, _, duration = reset.partition(":")
    if way == "by_duration":
        found = log.offset_for_timestamp(now_ms - duration_ms(duration))
        if found is not None:
            return min(found.offset, log.high_watermark)
    return max(end_offset, log.log_start_offset)
