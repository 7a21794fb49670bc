"""How many tasks a session runs at once: what a source plans for unless it has the option `tasks`.

The planner of a source is a process beside the driver that knows only its own machine's cores. The session knows the
cluster's: those of the executors that have registered, or more, where it has asked for more than have come yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_LARGEST: Final = 100_000
"""What an executor's cores or instances may be: `spark.dynamicAllocation.maxExecutors` is 2147483647 by default."""


def session_parallelism(spark: Any) -> int | None:
    """Return the tasks that run at once on the session's executors; None through Spark Connect, which cannot say it."""
    if getattr(spark, "_jvm", None) is None:
        return None
    context = spark.sparkContext
    return max(int(context.defaultParallelism), requested_tasks(dict(context.getConf().getAll())))


def requested_tasks(conf: Mapping[str, str]) -> int:
    """Return how many tasks the executors run that the session has asked for; 0 where it has asked for no number."""
    cores = _number(conf, "spark.executor.cores") or 1
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "").lower() == "true"
    executors = _number(conf, "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances")
    wanted = executors * cores or _number(conf, "spark.cores.max")
    return wanted // (_number(conf, "spark.task.cpus") or 1)


def _number(conf: Mapping[str, str], name: str) -> int:
    text = conf.get(name, "")
    return int(text) if text.isdecimal() and int(text[:10]) <= _LARGEST else 0
