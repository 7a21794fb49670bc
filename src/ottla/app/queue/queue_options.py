"""What a queue has beside a handler: its attempts, how long one may last, and where a new group starts."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from ottla.errors import ConfigError
from ottla.failures.retry import RetryPolicy
from ottla.quantities import Span, check_kinds, count, milliseconds_of, seconds
from ottla.showing import shown
from ottla_wire.facts import fact

Start: TypeAlias = Literal["earliest", "latest"]

DEFAULT_MAX_JOB_S: Final = 600.0
DEFAULT_ATTEMPTS: Final = 5


@fact
class QueueOptions:
    """The options of one queue."""

    max_attempts: int
    """Which attempt is the last one, of all members together."""
    max_job_ms: int
    """How long one attempt may last."""
    start: Start
    """Where a new group starts: at the log start, or behind the records that are there."""


def queue_options(
    name: str, *, retry: RetryPolicy | None, max_attempts: int | None, max_job_s: Span, start: str
) -> tuple[QueueOptions, RetryPolicy]:
    """Return the checked options, and how a job is retried. Raises `ConfigError` for what cannot work."""
    if start not in ("earliest", "latest"):
        raise ConfigError(f"{name}: start: found {shown(start)}, wanted 'earliest' or 'latest'")
    seconds(name, "max_job_s", max_job_s, least=1.0)
    if retry is not None and max_attempts is not None:
        raise ConfigError(f"{name}: max_attempts= and retry= both say when a job is given up; leave one of them out")
    check_kinds(name, retry=(retry, RetryPolicy))
    if max_attempts is not None:
        count(name, "max_attempts", max_attempts)
    policy = retry or RetryPolicy(max_attempts=max_attempts or DEFAULT_ATTEMPTS)
    last = policy.last_attempt
    if last is None:
        raise ConfigError(
            f"{name}: retry= must end after a number of attempts: the broker gives a record up after "
            "share.delivery.count.limit deliveries, without a dead letter; wanted max_attempts= in RetryPolicy"
        )
    return QueueOptions(max_attempts=last, max_job_ms=milliseconds_of(max_job_s), start=start), policy  # type: ignore[arg-type]
