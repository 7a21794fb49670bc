"""Makes a `Log` of a partition directory, a new one or one that a start has found."""

from __future__ import annotations

from collections.abc import Callable

from broker_embedded.common.clock import Clock
from broker_embedded.common.filesystem import FileSystem
from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.common.types import TopicPartition
from broker_embedded.storage.file_pool import FilePool
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_dir import OffsetCheckpoint
from broker_embedded.storage.log_loader import LogLoader


class LogFactory:
    """`on_cut` is called when a checkpoint of a log is no longer true, `on_failure` when its disk fails."""

    def __init__(
        self,
        fs: FileSystem,
        pool: FilePool,
        *,
        clock: Clock,
        must_be_whole: bool,
        on_cut: Callable[[Log], None],
        on_failure: Callable[[Log, OSError], None],
    ) -> None:
        self._fs = fs
        self._pool = pool
        self._clock = clock
        self._must_be_whole = must_be_whole
        self._on_cut = on_cut
        self._on_failure = on_failure

    def open(
        self,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: TopicConfig,
        *,
        saved: OffsetCheckpoint | None,
    ) -> Log:
        """Open the log of a directory. `saved`: the checkpoints of the last run; None for a directory that was just
        made."""
        tp = TopicPartition(topic, partition)
        loaded = LogLoader(
            self._fs,
            self._pool,
            directory,
            name=str(tp),
            config=config,
            now_ms=self._clock.now_ms(),
            is_clean=saved is None or saved.is_clean,
            recovery_point=saved.recovery_points.get(tp, 0) if saved else 0,
            log_start_offset=saved.log_starts.get(tp, 0) if saved else 0,
            must_be_whole=self._must_be_whole,
        ).load()
        log = Log(
            self._fs,
            self._pool,
            directory,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            clock=self._clock,
            loaded=loaded,
            high_watermark=saved.high_watermarks.get(tp, 0) if saved else 0,
            on_cut=self._on_cut,
            on_failure=self._on_failure,
        )
        log.is_settled = saved is not None
        log.cleaned_to = min(saved.cleaned_to.get(tp, 0) if saved else 0, log.log_end_offset)
        return log
