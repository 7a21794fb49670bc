"""The failure row "crash before commit" with a real crash: SIGKILL to a service with work in flight, in each shell.

Elsewhere an out-of-order tail is lost, or everything since the last mark comes again. Here it is at most what was in
flight and what was finished since the last commit; the oracle knows the times of both. The other rows are in
tests/sdk/app/test_failure_rows.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from torture_kit.plan import Fault, Kind, Plan
from torture_kit.round import run_round


@pytest.mark.representative("threads")
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("shell", ["threads", "asyncio", "columns"])
def test_crash_before_commit_repeats_what_was_in_flight_and_loses_nothing(shell: str, tmp_path: Path) -> None:
    drawn = Plan.draw(seed=1, shell=shell, records=300, faults=0)
    stage = replace(drawn.stages[0], ordering="key", concurrency=4, is_batch=False)
    kill = Fault(at_records=100, kind=Kind.KILL, stage=stage.name, choice=0)
    plan = replace(drawn, stages=(stage,), faults=(kill,), consumer_settings={}, session_timeout_ms=1_500)
    verdict = run_round(plan, tmp_path)
    assert verdict.is_kept, str(verdict)
    assert any("is killed" in text for _, text in verdict.transcript)
