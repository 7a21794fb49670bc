"""Services with queues that are killed, stopped and continued, and a broker that is, with an oracle.

Every job is handled, or is a dead letter; when all are settled none is delivered again.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from queue_services import Jobs, Service, eventually, services

from broker_embedded.cluster import EmbeddedCluster
from ottla import Queue

SHORT_LOCKS = {
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
}
JOBS = 60


def check(jobs: Jobs, service: Service) -> None:
    """Wait until every job is done, or a dead letter if it fails at each attempt."""
    never = {number for number in range(jobs.sent) if number % 7 == 3}
    wanted = set(range(jobs.sent)) - never
    eventually(lambda: set(service.noted("done")) == wanted, timeout_s=120, what="all jobs are done")
    assert jobs.dead_letters_until(never) == never


def check_nothing_is_left(jobs: Jobs) -> None:
    with Queue(jobs.topic, group=jobs.group, bootstrap_servers=jobs.servers) as queue:
        assert queue.take(2.0) is None, "what was accepted or rejected is not delivered again"


@pytest.mark.complete
@pytest.mark.representative
def test_jobs_of_a_killed_member_are_another_members(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        jobs = Jobs(cluster.bootstrap_servers, jobs=JOBS)
        with services(jobs, tmp_path) as start:
            hanging = start("hang")
            eventually(lambda: len(hanging.noted("began")) == 4, what="it has as many jobs as workers")
            other = start("quick")
            eventually(lambda: other.noted("done"), what="the other one works")
            hanging.process.kill()  # long before its locks run out
            check(jobs, other)
            other.process.send_signal(signal.SIGTERM)
            assert other.process.wait(30) == 0
        check_nothing_is_left(jobs)
        counts = Counter(other.noted("done"))
        assert max(counts.values()) == 1, "nothing was handled twice: the killed one had finished none"


@pytest.mark.complete
def test_jobs_of_a_member_that_stood_still_beyond_its_lock_are_another_members(tmp_path: Path) -> None:
    with EmbeddedCluster(config=SHORT_LOCKS) as cluster:
        jobs = Jobs(cluster.bootstrap_servers, jobs=JOBS)
        with services(jobs, tmp_path) as start:
            stopped = start("slow")
            eventually(lambda: len(stopped.noted("done")) >= 4, what="it works")
            stopped.process.send_signal(signal.SIGSTOP)
            other = start("quick")
            check(jobs, other)
            stopped.process.send_signal(signal.SIGCONT)
            jobs.send(JOBS)  # it goes on as a member
            check(jobs, other)
            for service in (stopped, other):
                service.process.send_signal(signal.SIGTERM)
                assert service.process.wait(30) == 0
        check_nothing_is_left(jobs)


@pytest.mark.complete
def test_sigterm_ends_a_service_without_losing_or_holding_jobs(tmp_path: Path) -> None:
    with EmbeddedCluster() as cluster:
        jobs = Jobs(cluster.bootstrap_servers, jobs=JOBS)
        with services(jobs, tmp_path) as start:
            first = start("slow")
            eventually(lambda: len(first.noted("done")) >= 8, what="it works")
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(30) == 0
            second = start("quick")
            check(jobs, second)
            second.process.send_signal(signal.SIGTERM)
            assert second.process.wait(30) == 0
        check_nothing_is_left(jobs)
        assert max(Counter(second.noted("done")).values()) == 1, "what had begun was accepted, the rest released"


@pytest.mark.complete
def test_members_go_on_when_the_leader_of_their_partitions_dies(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        jobs = Jobs(cluster.bootstrap_servers, jobs=JOBS, replicas=3)
        with services(jobs, tmp_path) as start:
            service = start("slow")
            eventually(lambda: len(service.noted("done")) >= 4, what="it works")
            cluster.kill(cluster.leader(jobs.topic, 0))
            check(jobs, service)
