"""The console's shared state: what every request works with, and the few values kept between requests. Thread-safe."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ottla.admin import Admin
from ottla.admin.facts.cluster_facts import NotRead
from ottla.admin.facts.facts_file import write_whole
from ottla.browse.human_amounts import moment
from ottla.browse.registry_access import RegistryAccess
from ottla.config import Settings
from ottla.console.answers import Answers
from ottla.console.doctor_pages import Looks
from ottla.console.jobs import Jobs
from ottla.console.masks import Masks
from ottla.console.moves_under_way import HeldThrottle
from ottla.console.query import Query
from ottla.console.rhythm import FIGURES, OUTLINE
from ottla.console.watcher import WatchedFacts, Watcher
from ottla.errors import InputError
from ottla.wire_client.cluster.cluster_client import Cluster

T = TypeVar("T")

_OUTLINE_S: Final = 5.0
"""For reading how a cluster stands: a broker that does not answer in this time is a finding, and not waited for."""
_MOST_KEPT: Final = 32
_MOST_TOLD: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """Options of `ottla console`."""

    may_write: bool = False
    masks: Masks = field(default_factory=Masks)
    registry: str | RegistryAccess | None = None
    schemas: Mapping[str, Path] = field(default_factory=dict)
    """Topic → the Avro schema of its values."""
    control: str | None = None
    """The control API of an embedded broker."""
    folder: Path = field(default_factory=Path)
    """Folder of undo files, plans and the audit file."""
    declared: tuple[Path, ...] = ()
    """Files of `ottla apply` whose diff is shown."""
    baseline: Path | None = None
    """Accepted findings."""
    every_s: float = 3.0
    name: str | None = None
    """The cluster's name in the clusters file."""
    asks_name: bool = False
    """Whether a change wants the cluster's name typed."""


class SavedPlans:
    """Plans that were shown and may be carried out unchanged, by a number. The oldest ones are forgotten."""

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._kept: OrderedDict[int, object] = OrderedDict()

    def keep(self, plan: object) -> int:
        """Keep a plan. Returns its number."""
        with self._lock:
            number = next(self._numbers)
            self._kept[number] = plan
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return number

    def take(self, number: int | None, kind: type[T]) -> T:
        """Return the plan and forget it, so that it cannot run twice. Raises InputError if there is none."""
        if number is None:
            raise InputError("plan: found none, wanted the number of one that was shown")
        with self._lock:
            found = self._kept.get(number)
            if not isinstance(found, kind):
                raise InputError(f"plan {number} is no longer known: ask for a new one")
            del self._kept[number]
            return found


class ConsoleState:
    """Made by the command; `close` ends what runs in the background."""

    def __init__(
        self,
        kafka: Settings,
        choices: ConsoleOptions,
        *,
        open_cluster: Callable[..., Cluster],
        timeout_s: float,
        warn: Callable[[str], object],
    ) -> None:
        self.kafka = kafka
        self.choices = choices
        self.plans = SavedPlans()
        self.jobs = Jobs(self.now_ms)
        self.held_throttle = HeldThrottle()
        self.looks = Looks()
        self.answers = Answers(self.now_ms)
        self.files = threading.Lock()
        """Lock for files that are changed by several requests."""
        self.warn = warn
        """Says on stderr what is wrong."""
        self._open_cluster = open_cluster
        self._audit_lock = threading.Lock()
        self.admin = Admin(settings=dict(kafka), timeout_s=timeout_s)
        self._watching = Admin(settings=dict(kafka), timeout_s=timeout_s)
        self._outlining = Admin(settings=dict(kafka), timeout_s=min(timeout_s, _OUTLINE_S))
        self._watcher = Watcher(
            lambda: self._watching.facts(OUTLINE | FIGURES),
            lambda: self._outlining.facts(OUTLINE),
            every_s=choices.every_s,
            now_ms=self.now_ms,
            monotonic=time.monotonic,
        )

    def close(self) -> None:
        """End what runs in the background, and all connections."""
        self.jobs.close()
        self._watcher.close()
        self._watching.close()
        self._outlining.close()
        self.admin.close()

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    @property
    def masks(self) -> Masks:
        return self.choices.masks

    def seen(self, *, fresh: bool = False) -> WatchedFacts:
        """Return the facts, as old as they are."""
        return self._watcher.seen(fresh=fresh)

    def cluster(self, **limits: Any) -> Cluster:
        """Open a wire client for one request: it reads records, and belongs to one thread."""
        return self._open_cluster(**limits)

    def audit(self, what: str, subject: str, *, before: Any = None, after: Any = None) -> None:
        """Write a line about a change to disk, before the change. Raises `InputError` if it cannot be written."""
        line = {
            "at": moment(self.now_ms()),
            "what": what,
            "cluster": self.choices.name or self.kafka.get("bootstrap.servers"),
            "subject": subject,
            "before": before,
            "after": after,
        }
        path = self.choices.folder / "ottla-console-audit.jsonl"
        try:
            with self._audit_lock, path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=True, default=str) + "\n")
                file.flush()
        except OSError as error:
            raise InputError(
                f"nothing was changed, because the audit file cannot be written: {path}: {error}"
            ) from None

    def write_file(self, path: Path, data: bytes) -> None:
        """Write a file whole; InputError where it cannot be."""
        write_whole(path, data)

    def agree(self, query: Query) -> None:
        """Raise InputError unless `confirm` is the cluster's name, where the cluster has `confirm = "name"`. Call it
        after all other parameters are read: it refuses every one that was not."""
        typed = query.text("confirm")
        query.done()
        if self.choices.asks_name and typed != self.choices.name:
            raise InputError(f"type the cluster's name, {self.choices.name}, to agree")


def state_of(seen: WatchedFacts) -> dict[str, Any]:
    """Return the quality of a page's data: its age, and what could not be read."""
    return {
        "at": moment(seen.facts.at_ms),
        "age_ms": seen.age_ms,
        "figures_age_ms": seen.figures_age_ms,
        "problem": seen.problem,
        "not_read": not_read(seen.facts.not_read),
    }


def not_read(missing: tuple[NotRead, ...]) -> list[str]:
    """Return what could not be read and why, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for each in missing:
        by_reason.setdefault(f"{each.part}: {each.why}", []).append(each.subject)
    return [
        f"{subjects[0]}{f' and {len(subjects) - 1} more' if len(subjects) > 1 else ''}: {reason}"
        for reason, subjects in list(by_reason.items())[:_MOST_TOLD]
    ]


def page_of(items: list[dict[str, Any]], *, page: int, size: int) -> dict[str, Any]:
    """Return one page of a list, with how many there are."""
    return {"total": len(items), "page": page, "size": size, "items": items[page * size : (page + 1) * size]}
