"""`App.queue`: a handler on a share group, whose records are leased one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack, overload

from ottla.app.declaration.declaring import Declares, DeclaresOnApp, F, check_concurrency
from ottla.app.declaration.route import Route
from ottla.app.handler.handler_options import ForOne, Value
from ottla.app.queue.queue_options import DEFAULT_MAX_JOB_S, Start, queue_options
from ottla.config.arguments import explained
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import ConfigError
from ottla.failures.budget import DeadLetterBudget
from ottla.failures.exceptions import exception_entries
from ottla.failures.outcomes import Dead, Outcome, Skip
from ottla.failures.retry import RetryPolicy
from ottla.once.inbox import Inbox
from ottla.quantities import Span
from ottla.serdes.base import SerdeOf
from ottla.showing import shown


class _Options(TypedDict, total=False):
    """The arguments of `App.queue` that the type of the handler does not depend on."""

    key: Any
    group: str | None
    concurrency: int
    max_attempts: int | None
    retry: RetryPolicy | None
    dead_letter_topic: str | None
    max_job_s: Span
    start: Start
    on_error: Mapping[type[BaseException], Outcome] | None
    budget: DeadLetterBudget | None
    ttl_s: Span | None
    on_expired: Skip | Dead | None
    expires_grace_s: Span
    inbox: Inbox | None
    name: str | None


class DeclaresQueues(Declares):
    """The part of `App` and `Router` that declares queues."""

    @overload
    def queue(
        self,
        *topics: str,
        value: type[bytes] | type[str] | type[int] | None = None,
        **options: Unpack[_Options],
    ) -> Callable[[F], F]: ...

    @overload
    def queue(self, *topics: str, value: SerdeOf[Value], **options: Unpack[_Options]) -> ForOne[Value]: ...

    @explained("App.queue")
    def queue(
        self,
        *topics: str,
        value: Any = None,
        key: Any = None,
        group: str | None = None,
        concurrency: int = 1,
        max_attempts: int | None = None,
        retry: RetryPolicy | None = None,
        dead_letter_topic: str | None = None,
        max_job_s: Span = DEFAULT_MAX_JOB_S,
        start: Start = "earliest",
        on_error: Mapping[type[BaseException], Outcome] | None = None,
        budget: DeadLetterBudget | None = None,
        ttl_s: Span | None = None,
        on_expired: Skip | Dead | None = None,
        expires_grace_s: Span = 0.0,
        inbox: Inbox | None = None,
        name: str | None = None,
    ) -> Callable[[F], F]:
        """Declare a handler for jobs: records of `topics` that are leased one by one to the members of a share group
        (KIP-932). Needs Kafka 4.2 or newer. Raises `ConfigError` at once for what cannot work.

        There may be more members than partitions, and a slow job delays no other one. Jobs have no order, and each is
        handled at least once.

        `concurrency` is how many jobs may be handled at the same time; no more are leased than can begin at once. A job
        that fails waits here for its next attempt, as `retry` says, with its lease renewed; a job whose process dies is
        handled by another member at once. `max_attempts` (5 if not given; or that of `retry`) counts the attempts of
        all members. Then, and for `Dead`, `InvalidRecord` and what cannot be decoded, its dead letter is written to
        `dead_letter_topic`, and when that is acknowledged the record is rejected. `max_attempts` must be below the
        group's `share.delivery.count.limit`, which the start checks, and raises where it was not chosen.

        `max_job_s` is how long one attempt may last (10 minutes if not given). An `async def` handler is cancelled
        then; the result of another is dropped when it comes. Both count as a failed attempt. `context.lease_lost` says
        that the lease ended before the handler did.

        With ``inbox=Inbox(store)`` a job whose message was handled before is accepted without the handler: one that was
        sent twice, and one that is delivered again because its process died between the work and the acknowledgement.

        `start` is where a group that is new starts: ``"earliest"`` with the jobs that are there, ``"latest"`` with
        those that are sent from then on. `group` is the name of the share group, the app's if not given. It cannot be
        that of a consumer group, so an app with handlers names it. The other arguments are those of `handler`.
        """
        for topic in topics:
            if not isinstance(topic, str):
                raise ConfigError(
                    f"queue: found {shown(topic)} for a topic, wanted names: @app.queue('images', 'videos')"
                )
        check_concurrency("queue", concurrency)

        def add(app: DeclaresOnApp, function: F) -> None:
            queue_name: str = name or getattr(function, "__name__", None) or type(function).__name__
            options, policy = queue_options(
                queue_name, retry=retry, max_attempts=max_attempts, max_job_s=max_job_s, start=start
            )
            route = Route(
                name=queue_name,
                handler=function,
                topics=frozenset(topics),
                group=group or app.group,
                value=value,
                key=key,
                retry=policy,
                dead_letter_topic=dead_letter_topic or app.dead_letter_topic,
                on_error={**app._on_error, **exception_entries(on_error)},
                concurrency=concurrency,
                ordering=Ordering.UNORDERED,
                max_records_per_turn=1,
                budget=budget or app._budget,
                ttl_s=ttl_s,
                on_expired=on_expired,
                expires_grace_s=expires_grace_s,
                inbox=inbox,
                hooks=app.hooks,
                resources=app._parts.resources,
                queue=options,
            )
            app._add(route)

        return self._declare("a queue", add)
