"""The health of all workers of a service as one, and each by its number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ottla.processes.supervision import Phase, WorkerState

_STUCK_S: Final = 10.0
"""A supervisor whose loop has not turned for so long does not restart any worker."""

_PROBLEMS: Final = {
    Phase.WAITING: "it has ended, and is started again",
    Phase.LOADING: "it is starting",
    Phase.STOPPING: "it is stopping",
    Phase.ENDING: "it is stopping",
    Phase.ENDED: "it has ended",
}


def worker_body(worker: WorkerState, body: dict[str, Any] | None, *, pid: int | None, silent_ms: int) -> dict[str, Any]:
    """Return the health of one worker. `body` is its own last report, `silent_ms` 0 unless that is too old."""
    problems = list(body["problems"]) if body is not None and worker.phase is Phase.RUNNING else []
    if worker.phase is not Phase.RUNNING:
        problem = "it has not been started" if worker.starts == 0 else _PROBLEMS[worker.phase]
        problems.append(problem)
    elif body is None:
        problems.append("it has not said yet how it is")
    elif silent_ms:
        problems.append(f"it has not said for {silent_ms / 1_000:.0f} s how it is")
    return {
        "worker": worker.number,
        "pid": pid,
        "ready": body is not None and bool(body["ready"]) and not problems,
        "alive": body is None or bool(body["alive"]),
        "starts": worker.starts,
        "problems": problems,
        "limited": [] if body is None else body["limited"],
        "partitions": [] if body is None else body["partitions"],
    }


def merged_body(parts: Sequence[dict[str, Any]], *, supervisor_silent_s: float) -> dict[str, Any]:
    """Return the body of `/health`: ready if every worker is. It is alive as long as the supervisor is, which replaces
    a worker that is not."""
    is_alive = supervisor_silent_s < _STUCK_S
    problems = [f"worker {part['worker']}: {problem}" for part in parts for problem in part["problems"]]
    if not is_alive:
        problems.append(f"the supervisor has not looked at its workers for {supervisor_silent_s:.0f} s")
    return {
        "ready": is_alive and all(part["ready"] for part in parts),
        "alive": is_alive,
        "problems": problems,
        "limited": list(dict.fromkeys(handler for part in parts for handler in part["limited"])),
        "partitions": [{**each, "worker": part["worker"]} for part in parts for each in part["partitions"]],
        "workers": [
            {name: part[name] for name in ("worker", "pid", "ready", "alive", "starts", "problems")} for part in parts
        ],
    }


def workers_text(workers: Sequence[dict[str, Any]]) -> str:
    """Return the supervisor's own metrics in Prometheus' text format."""
    ready = [f'ottla_worker_ready{{worker="{each["worker"]}"}} {int(each["ready"])}' for each in workers]
    starts = [f'ottla_worker_starts_total{{worker="{each["worker"]}"}} {each["starts"]}' for each in workers]
    lines = [
        "# HELP ottla_worker_ready Whether a worker process is ready.",
        "# TYPE ottla_worker_ready gauge",
        *ready,
        "# HELP ottla_worker_starts_total How often a worker process was started.",
        "# TYPE ottla_worker_starts_total counter",
        *starts,
    ]
    return "\n".join(lines) + "\n"
