"""Whether what a client names is there: the words for a topic that is missing, and how long one is waited for.

One rule for both shells. A consumer creates no topics (allow.auto.create.topics=false): a subscription to a misspelt
name would be an empty topic for ever. A topic that is missing is waited for, as long as the caller chose; then it is an
error that names the command that creates it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.errors import UnknownTopic

TOPICS_TIMEOUT_S: Final = 3.0
"""How long a topic may be missing at the start if nobody chose: a new one is not known everywhere at once."""

_AGAIN_S: Final = 0.1
_SELDOM_S: Final = 1.0
_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Ask once more in so many seconds. `warning`: the fields of `topics_awaited`, once."""

    in_s: float
    warning: Mapping[str, object] | None


class TopicWait:
    """Look for `topics` until `after` returns None. Times are seconds of one monotonic clock."""

    def __init__(self, topics: Collection[str], *, servers: str, timeout_s: float | None, now_s: float) -> None:
        self.topics = sorted(set(topics))
        self._servers = servers
        self._timeout_s = TOPICS_TIMEOUT_S if timeout_s is None else timeout_s
        self._started_s = now_s
        self._is_told = False

    def missing(self, existing: Collection[str]) -> list[str]:
        """Those that are not among `existing`."""
        there = set(existing)
        return [name for name in self.topics if name not in there]

    def ends(self, existing: Collection[str], now_s: float, *, gives_up: bool = False) -> bool:
        """Whether `after` will raise: then `existing` should have all that the cluster has, for the error's hint."""
        return bool(self.missing(existing)) and (gives_up or now_s - self._started_s >= self._timeout_s)

    def after(self, existing: Collection[str], now_s: float, *, gives_up: bool = False) -> LookAgain | None:
        """What to do when the cluster has `existing`. Raises `UnknownTopic` when the time is up."""
        missing = self.missing(existing)
        if not missing:
            return None
        waited_s = now_s - self._started_s
        left_s = self._timeout_s - waited_s
        if self.ends(existing, now_s, gives_up=gives_up):
            raise unknown_topics(missing, self._servers, existing=existing)
        warning = None
        if waited_s >= TOPICS_TIMEOUT_S and not self._is_told:  # not for one that was made a moment ago
            warning = {"topics": missing[:_MOST_NAMED], "missing": len(missing), "for_s": round(left_s, 1)}
            self._is_told = True
        return LookAgain(min(_AGAIN_S if waited_s < TOPICS_TIMEOUT_S else _SELDOM_S, left_s), warning)


def unknown_topics(missing: Sequence[str], servers: str, *, existing: Collection[str] = ()) -> UnknownTopic:
    """The error for topics that a consumer names and the cluster does not have."""
    shown = ", ".join(missing[:_MOST_NAMED]) + ("" if len(missing) <= _MOST_NAMED else f" and {len(missing) - 10} more")
    near = difflib.get_close_matches(missing[0], [name for name in existing if name not in missing], n=1, cutoff=0.8)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownTopic(
        f"the cluster at {servers} does not have {shown}.{hint} A consumer creates no topics. Create it with "
        f"`{create_command(missing, servers)}`, or let the service do it: App(..., create_topics=True)"
    )


def create_command(names: Sequence[str], servers: str) -> str:
    """The command that creates topics."""
    return f"ottla topics create {' '.join(names[:_MOST_NAMED])} --bootstrap-servers {servers}"
