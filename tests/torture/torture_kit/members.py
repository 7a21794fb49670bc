"""The members of the chain: child processes, each behind a link of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from broker_links import Link

from torture_kit.plan import Plan, StagePlan

KIT = Path(__file__).parents[1]
_HEALTH = re.compile(r"health at (http://\S+)")


class Member:
    """One process of one stage."""

    def __init__(self, name: str, shell: str, stage: StagePlan, plan: Plan, link: Link, directory: Path) -> None:
        self.name = name
        self.shell = shell
        self.stage = stage
        self.link = link
        self.journal = directory / f"{name}.journal"
        self.log = directory / f"{name}.log"
        self.is_leaving = False
        self.is_killed = False
        self.asked_to_leave_at_s = 0.0
        settings = dict(plan.consumer_settings)
        if settings.get("group.protocol") != "consumer":
            settings |= {"session.timeout.ms": plan.session_timeout_ms, "heartbeat.interval.ms": 500}
        description = {
            "member": name,
            "stage": stage.name,
            "group": stage.group,
            "shell": shell,
            "seed": plan.seed,
            "source": stage.source,
            "target": stage.target,
            "dead_letter_topic": stage.dead_letter_topic,
            "ordering": stage.ordering,
            "concurrency": stage.concurrency,
            "is_batch": stage.is_batch,
            "retry_delays_s": stage.retry_delays_s,
            "has_wishes": plan.has_wishes,
            "is_urgent_first": plan.has_wishes and stage is plan.stages[0],
            "servers": link.bootstrap_servers,
            "journal": str(self.journal),
            "commit_every_s": plan.commit_every_s,
            "drain_s": plan.drain_s,
            "settings": settings,
            "producer_settings": {"linger.ms": 2},
        }
        environment = {
            **os.environ,
            "TORTURE_SERVICE": json.dumps(description),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(KIT), os.environ.get("PYTHONPATH", "")])),
        }
        command = [sys.executable, "-m", "ottla", "run", "torture_kit.service:app", "--health-port", "0"]
        if shell == "asyncio":
            command.append("--asyncio")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    @property
    def has_begun(self) -> bool:
        """Whether it was in the group ever."""
        return self.journal.exists() and "partitions_assigned" in self.journal.read_text(encoding="utf-8")

    def ask_to_leave(self) -> None:
        self.is_leaving = True
        self.asked_to_leave_at_s = time.time()
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self.is_killed = True
        self._process.kill()
        self._process.wait()

    def health(self) -> str:
        """What the member says of itself, for a transcript."""
        found = _HEALTH.search(self.log.read_text(encoding="utf-8", errors="replace"))
        if found is None or not self.is_alive:
            return f"exit code {self.exit_code}" if not self.is_alive else "still starting"
        try:
            with urllib.request.urlopen(found.group(1), timeout=3) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return str(error.read().decode())
        except OSError as error:
            self._process.send_signal(signal.SIGUSR1)  # every thread's stack goes to the log
            self._process.poll()
            time.sleep(0.5)
            return f"does not answer: {error}"

    def last_words(self, lines: int = 80) -> list[str]:
        """The end of its log, without what every failing handler leaves there."""
        said = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in said if "record_retried" not in line and "record_dead_lettered" not in line][-lines:]
