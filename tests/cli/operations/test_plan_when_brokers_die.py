"""All brokers die while `ottla plan run`, `throttle` or `cancel` waits for a change: none is called done, and the same
command goes on when they are back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from command_output import Run
from dying_brokers import assert_not_called_done, run_until_it_dies
from plan_runs import filled_topic, interrupt_when, moves, moving, plan_document, replicas, throttles

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, Part
from ottla.browse.plan_files import opened
from ottla.errors import RetriableError
from ottla.testing import wait_until

pytestmark = [pytest.mark.complete, pytest.mark.slow, pytest.mark.timeout(300)]

_numbers = count(1)
RUN = "plan run plan.json --yes --poll 0.05 --max-fill 1 --sample 0s --give-up-after 2"
THROTTLED = f"{RUN} --throttle 50MB"
CANCEL = "plan cancel plan.json --yes --poll 0.05"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster, admin: Admin, ottla: Run) -> Iterator[str]:
    """Four partitions on brokers 1 and 2, and a plan for brokers 3 and 2 in the test's folder."""
    name = filled_topic(admin, cluster.bootstrap_servers, f"dying-{next(_numbers)}", records=250)
    Path("plan.json").write_bytes(plan_document(name, (3, 2)))
    yield name
    back(admin, cluster)
    admin.delete_topics(name)


@pytest.mark.parametrize("is_applied", [False, True], ids=["before it is made", "after it is made"])
@pytest.mark.parametrize(
    ("api", "line"),
    [("ALTER_PARTITION_REASSIGNMENTS", RUN), ("INCREMENTAL_ALTER_CONFIGS", THROTTLED)],
    ids=["the moves", "the throttle"],
)
def test_a_run_is_not_called_done_and_goes_on(
    ottla: Run,
    cluster: EmbeddedCluster,
    admin: Admin,
    topic: str,
    tmp_path: Path,
    api: str,
    line: str,
    is_applied: bool,
) -> None:
    before = throttles(admin, topic)
    ended = run_until_it_dies(cluster, api, line, tmp_path, is_applied=is_applied)
    assert_not_called_done(ended)
    assert "continue: ottla plan run plan.json" in ended.stderr
    back(admin, cluster)
    again = ottla(*line.split())
    assert again.exit_code == 0, again.output
    assert replicas(admin, topic) == {(3, 2)}
    assert throttles(admin, topic) == before


@pytest.fixture
def under_way(admin: Admin, topic: str, tmp_path: Path) -> str:
    """The plan as a run at a byte per second has left it: moves are under way."""
    planned = moves(admin, topic)
    with opened(tmp_path / "plan.json", planned):
        pass
    interrupt_when(admin, planned, tmp_path / "plan.json.journal", lambda seen: moving(seen) > 0, throttle=1)
    return topic


@pytest.mark.parametrize("is_applied", [False, True], ids=["before it is made", "after it is made"])
def test_a_throttle_is_not_called_changed_and_is_changed_by_the_next(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, under_way: str, tmp_path: Path, is_applied: bool
) -> None:
    line = "plan throttle plan.json 50MB --yes --sample 0s"
    ended = run_until_it_dies(cluster, "INCREMENTAL_ALTER_CONFIGS", line, tmp_path, is_applied=is_applied)
    assert ended.exit_code == 1, ended.output
    assert "whether it was changed is not known: broker" in ended.stderr
    assert "copy with" not in ended.output
    back(admin, cluster)
    assert ottla(*line.split()).exit_code == 0
    assert ottla(*THROTTLED.split()).exit_code == 0
    assert replicas(admin, under_way) == {(3, 2)}


@pytest.mark.parametrize("is_applied", [False, True], ids=["before it is made", "after it is made"])
def test_a_cancel_is_not_called_done_and_is_done_by_the_next(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, under_way: str, tmp_path: Path, is_applied: bool
) -> None:
    ended = run_until_it_dies(cluster, "ALTER_PARTITION_REASSIGNMENTS", CANCEL, tmp_path, is_applied=is_applied)
    assert_not_called_done(ended)
    assert "continue: ottla plan cancel plan.json" in ended.stderr
    back(admin, cluster)
    again = ottla(*CANCEL.split())
    assert again.exit_code == 0, again.output
    assert not admin.facts((Part.MOVES,)).moves
    assert replicas(admin, under_way) <= {(1, 2), (3, 2)}, "what was done stays"


def back(admin: Admin, cluster: EmbeddedCluster) -> None:
    """Wait until all brokers are up."""

    def are_all_up() -> bool:
        try:
            facts = admin.facts((Part.TOPICS, Part.LOG_DIRS))
        except RetriableError:  # a connection that a broker closed when it died
            return False
        is_led = all(each.leader is not None for topic in facts.topics for each in topic.partitions)
        return (
            is_led
            and not facts.not_read
            and {each.id for each in facts.brokers if not each.is_fenced} == set(cluster.broker_ids)
        )

    wait_until(are_all_up, 60)
