"""Goals of the CPU time per record and of the instructions per request, and the names of what is measured."""

from __future__ import annotations

CPU, TIME, PAUSE = "CPU", "time", "longest pause"
CPU_RATIO, TIME_RATIO = "CPU of the client / Ottla's", "time of the client / Ottla's"

HOT_PATHS = {
    "ottla: handler, bytes": 0.6,
    "ottla: handler, bytes +h": 0.6,
    "ottla: handler, dataclass": 0.7,
    "ottla: batch handler, bytes": 0.65,
    "ottla: asyncio handler, bytes": 0.6,
    "ottla: handler that sends": 0.45,
    "ottla: send": 0.6,
    "ottla: send_many": 0.95,
}
"""The least ratio of a raw client's CPU time to Ottla's, by contender: 0.5 allows Ottla twice the client's."""

HOT_PATHS_BY_THE_CLOCK = {"ottla: handler that sends": 0.4}
"""The same of the time that passes, where a path waits for acknowledgements as well."""

INSTRUCTIONS = {"Produce of 200 bytes": 200_000, "Fetch of ten records": 200_000}
"""The most instructions that the broker may execute for a request."""
