"""Names that identify a process, where `ottla run --workers` starts several with the same settings.

`OTTLA_WORKER` is the number of the worker in its environment. `client.id`, `group.instance.id` and `transactional.id`
get it as a suffix: two members with one instance id, or two producers with one transactional id, would fence each
other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from ottla.errors import ConfigError

WORKER_VARIABLE: Final = "OTTLA_WORKER"

NAMES_OF_PROCESS: Final = frozenset({"client.id", "group.instance.id", "transactional.id"})


def number_of_worker(environ: Mapping[str, str] | None = None) -> int | None:
    """Return the number of this worker process, from 1; None in a process that `--workers` did not start."""
    text = (os.environ if environ is None else environ).get(WORKER_VARIABLE)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000):
        raise ConfigError(f"{WORKER_VARIABLE}: found {text!r}, wanted the number that `ottla run --workers` sets")
    return int(text)


def name_of_worker(name: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the name for this process: in worker 2 with the suffix `-w2`. Settings that are resolved again keep it."""
    number = number_of_worker(environ)
    suffix = f"-w{number}"
    return name if number is None or name.endswith(suffix) else name + suffix
