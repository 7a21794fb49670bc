"""Quix Streams from topic to topic, exactly once, in a process of its own.

    python benchmarks/quix_exactly_once.py BOOTSTRAP GROUP SOURCE TARGET COUNT

Prints the time of the first record (`perf_counter`), and at the end the CPU seconds from there on, both as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from peer_pythons import QUIX, python_of


class QuixRun:
    """A copy of one topic that is under way. `began_s` is there once the first record was handled."""

    def __init__(self, bootstrap: str, group: str, source: str, target: str, count: int) -> None:
        command = [python_of(QUIX), __file__, bootstrap, group, source, target, str(count)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.began_s: float = self._next()

    def cpu_s(self) -> float:
        """Wait for its end and return what it took."""
        taken = self._next()
        self._process.wait(30)
        return taken

    def _next(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"Quix Streams ended with {self._process.wait(30)} before its last record")
        found: float = json.loads(line)
        return found


def main() -> None:
    from quixstreams import Application

    bootstrap, group, source, target, count = sys.argv[1:]
    app = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.1,
        loglevel="CRITICAL",
    )
    begun_cpu_s: list[float] = []

    def seen(value: bytes) -> bytes:
        if not begun_cpu_s:
            begun_cpu_s.append(time.process_time())
            print(json.dumps(time.perf_counter()), flush=True)
        return value

    frame = app.dataframe(app.topic(source, value_deserializer="bytes", key_deserializer="bytes"))
    frame = frame.apply(seen)
    frame.to_topic(app.topic(target, value_serializer="bytes", key_serializer="bytes"))
    app.run(count=int(count))
    print(json.dumps(time.process_time() - begun_cpu_s[0]), flush=True)


if __name__ == "__main__":
    main()
