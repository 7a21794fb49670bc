"""Messages and waiting times for missing topics.

One rule for both shells. A consumer creates no topics (allow.auto.create.topics=false): a subscription to a misspelt
name would be an empty topic for ever. A topic that is missing is waited for, as long as the caller chose; then it is an
error that names the command that creates it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from ottla.config.permissions import Principal
from ottla.errors import ConfigError, UnknownTopic
from ottla.retrying import Awaited, NotYet
from ottla.stepping import Steps, run

TOPICS_TIMEOUT_S: Final = 3.0
"""Default wait in seconds for missing topics at the start: a new topic is not known to all brokers at once."""

TOPICS_LONGEST_S: Final = 1.0
"""The longest pause between two questions for a topic."""
_MOST_NAMED: Final = 10

CONSUMER: Final = "consumer"
"""Names the client in errors about a missing topic: it creates no topics. An app can create it (`create_topics`)."""


class TopicWait:
    """Ask for `topics` while `check` raises `NotYet`, as `asking`. Times are seconds of one monotonic clock."""

    def __init__(
        self,
        topics: Collection[str],
        *,
        servers: str,
        timeout_s: float | None,
        now_s: float,
        who: str = CONSUMER,
        asking: Principal | None = None,
        should_give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self.topics = sorted(set(topics))
        self._servers = servers
        self._who = who
        self._asking = asking or Principal(topics=self.topics)
        self._should_give_up = should_give_up
        self._timeout_s = TOPICS_TIMEOUT_S if timeout_s is None else timeout_s
        self._started_s = now_s
        self.until_s = now_s + self._timeout_s
        self._is_logged = False

    def refusal(self) -> ConfigError:
        """Return the error for a topic that brokers do not describe to this client."""
        return self._asking.refused("TOPIC_AUTHORIZATION_FAILED", "it may not even be described", servers=self._servers)

    def check(self, existing: Collection[str], now_s: float) -> None:
        """Return if the cluster, which has `existing`, has all topics. Raises `NotYet` while there is time, with the
        fields of `topics_awaited` once; then `UnknownTopic`."""
        run(self.checking(existing, now_s, tuple))

    def checking(self, existing: Collection[str], now_s: float, all_names: Callable[[], Any]) -> Steps[None]:
        """Check as `check` does. `all_names` returns all topics of the cluster, which is asked last: one of them is not
        missing, though nothing was said of it before, and the error has a hint at a similar name."""
        missing = [name for name in self.topics if name not in existing]
        if not missing:
            return
        waited_s = now_s - self._started_s
        if self._should_give_up() or waited_s >= self._timeout_s:
            known = {*existing, *(yield all_names)}
            missing = [name for name in missing if name not in known]
            if not missing:
                return
            raise unknown_topics(missing, self._servers, existing=known, who=self._who)
        if waited_s >= TOPICS_TIMEOUT_S and not self._is_logged:  # not for one that was made a moment ago
            left_s = round(self._timeout_s - waited_s, 1)
            self._is_logged = True
            raise Awaited("topics_awaited", {"topics": missing[:_MOST_NAMED], "missing": len(missing), "for_s": left_s})
        raise NotYet(f"{missing[0]} is missing")


def unknown_topics(
    missing: Sequence[str], servers: str, *, existing: Collection[str] = (), who: str = CONSUMER
) -> UnknownTopic:
    """Return the error for topics that a consumer, or a bridge, names and the cluster does not have."""
    shown = ", ".join(missing[:_MOST_NAMED]) + ("" if len(missing) <= _MOST_NAMED else f" and {len(missing) - 10} more")
    near = difflib.get_close_matches(missing[0], [name for name in existing if name not in missing], n=1, cutoff=0.8)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    by_app = ", or let the service do it: App(..., create_topics=True)" if who == CONSUMER else ""
    return UnknownTopic(
        f"the cluster at {servers} does not have {shown}.{hint} A {who} creates no topics. Create it with "
        f"`{create_command(missing, servers)}`{by_app}"
    )


def create_command(names: Sequence[str], servers: str) -> str:
    """Return the command that creates topics."""
    return f"ottla topics create {' '.join(names[:_MOST_NAMED])} --bootstrap-servers {servers}"
