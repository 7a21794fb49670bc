"""A short torture round in each shell and in mixed groups; `tools/run torture --seconds 600` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from torture_kit.plan import Kind, Plan
from torture_kit.round import run_round

pytestmark = pytest.mark.complete


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("has_retry_topics", "has_wishes"), [(False, False), (True, True)], ids=["in place", "retry topics and wishes"]
)
@pytest.mark.parametrize(("shell", "seed"), [("threads", 1), ("asyncio", 1), ("columns", 1)])
def test_a_chain_that_is_disturbed_keeps_its_promises(
    shell: str, seed: int, has_retry_topics: bool, has_wishes: bool, tmp_path: Path
) -> None:
    plan = Plan.draw(
        seed=seed,
        shell=shell,
        records=1_200,
        faults=len(Kind),
        has_retry_topics=has_retry_topics,
        has_wishes=has_wishes,
    )
    assert {fault.kind for fault in plan.faults} == set(Kind)
    verdict = run_round(plan, tmp_path)
    assert verdict.is_kept, str(verdict)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_groups_with_members_of_all_three_clients_keep_their_promises(tmp_path: Path) -> None:
    """confluent-kafka, aiokafka and our own client hand partitions over to each other, whatever befalls them."""
    plan = Plan.draw(seed=1, shell="mixed", records=1_200, faults=len(Kind))
    verdict = run_round(plan, tmp_path)
    assert verdict.is_kept, str(verdict)
