"""Refuses clients of threads where gevent or eventlet have replaced Python's threads by greenlets.

librdkafka waits in C, where no greenlet switches: the thread that serves its reports would stop all greenlets of the
process, and the one that waits for a report would be among them. Nothing would be sent, and no timeout would end it.
"""

from __future__ import annotations

import sys
from typing import Any

from ottla.errors import ConfigError


def check() -> None:
    """Raise `ConfigError` if threads are greenlets in this process."""
    found = _replaced_by()
    if found is not None:
        raise ConfigError(
            f"{found} has replaced threads by greenlets in this process, and all of them would wait while librdkafka "
            "waits in C; wanted threads or processes: `gunicorn --worker-class gthread` or `celery --pool prefork`"
        )


def _replaced_by() -> str | None:
    gevent: Any = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        return "gevent"
    eventlet: Any = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        return "eventlet"
    return None
