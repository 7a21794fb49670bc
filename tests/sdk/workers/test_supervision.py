"""When worker processes are started, replaced and given up, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.processes.supervision import (
    AT_ONCE_MS,
    DEAD_MS,
    LONGEST_PAUSE_MS,
    MOST_DEATHS,
    QUIET_MS,
    Effect,
    End,
    How,
    LogWorker,
    Phase,
    Start,
    Supervision,
    WorkerReport,
)

GRACE_MS = 20_000
HUNG_MS = 300_000


class Service:
    """Workers that exist as effects, and what was done to them."""

    def __init__(self, count: int) -> None:
        self.now_ms = 0
        self.supervision = Supervision(count, loading_limit_ms=HUNG_MS)
        self.did: list[Effect] = []
        self.tick()

    def do(self, effects: list[Effect]) -> list[Effect]:
        self.did += effects
        return effects

    def tick(self, ms: int = 0) -> list[Effect]:
        self.now_ms += ms
        return self.do(self.supervision.tick(self.now_ms))

    def loaded(self, *workers: int) -> None:
        for number in workers:
            limits = {"grace_ms": GRACE_MS, "hung_after_ms": HUNG_MS}
            self.do(self.supervision.loaded(number, **limits, now_ms=self.now_ms))

    def report(self, *workers: int, is_alive: bool = True, stuck_ms: int = 0, silent_ms: int = 0) -> None:
        report = WorkerReport(is_alive=is_alive, stuck_ms=stuck_ms, silent_ms=silent_ms)
        for number in workers:
            self.supervision.reported(number, report, self.now_ms)

    def end(self, worker: int, exit_code: int) -> list[Effect]:
        return self.do(self.supervision.ended(worker, exit_code, self.now_ms))

    def signal(self) -> list[Effect]:
        return self.do(self.supervision.signalled(self.now_ms))

    def phases(self) -> list[Phase]:
        return [worker.phase for worker in self.supervision.workers]

    def started(self) -> list[int]:
        return [effect.worker for effect in self.did if isinstance(effect, Start)]

    def events(self) -> list[str]:
        return [effect.event for effect in self.did if isinstance(effect, LogWorker)]


def running(count: int = 2) -> Service:
    service = Service(count)
    service.loaded(*range(1, count + 1))
    service.did.clear()
    return service


def ends(effects: list[Effect]) -> list[tuple[int, How]]:
    return [(effect.worker, effect.how) for effect in effects if isinstance(effect, End)]


class TestStart:
    def test_the_others_start_when_the_first_has_loaded_the_app(self) -> None:
        service = Service(3)
        assert service.started() == [1]
        service.tick(60_000)
        assert service.started() == [1]
        service.loaded(1)
        assert service.started() == [1, 2, 3]

    @pytest.mark.parametrize("exit_code", [1, 2, -9])
    def test_an_app_that_cannot_be_loaded_ends_with_one_attempt(self, exit_code: int) -> None:
        service = Service(3)
        service.end(1, exit_code)
        assert service.supervision.is_over
        assert service.supervision.exit_code == (137 if exit_code == -9 else exit_code)
        assert service.started() == [1]
        assert service.events() == ["workers_given_up"]

    def test_an_import_that_ends_the_process_without_an_error_is_one_all_the_same(self) -> None:
        service = Service(1)
        service.end(1, 0)
        assert service.supervision.exit_code == 1

    def test_an_import_that_never_ends_is_replaced(self) -> None:
        service = Service(1)
        service.tick(HUNG_MS - 1)
        assert service.phases() == [Phase.LOADING]
        assert ends(service.tick(1)) == [(1, How.GRACEFULLY)]
        service.end(1, 143)
        service.tick(1_000)
        assert service.started() == [1, 1]


class TestDeath:
    def test_the_pause_doubles_and_a_worker_that_dies_on_is_given_up(self) -> None:
        service = running()
        pauses = []
        for death in range(1, MOST_DEATHS):
            (log,) = service.end(2, -9)
            assert isinstance(log, LogWorker)
            assert log.fields["deaths"] == death
            pauses.append(log.fields["again_in_s"])
            before = len(service.started())
            service.tick(round(float(str(pauses[-1])) * 1_000) - 1)
            assert len(service.started()) == before
            service.tick(1)
            assert len(service.started()) == before + 1
            service.loaded(2)
        assert pauses == [1, 2, 4, 8]
        effects = service.end(2, -9)
        assert ends(effects) == [(1, How.GRACEFULLY)], "the others drain"
        assert not service.supervision.is_over
        service.end(1, 0)
        assert service.supervision.is_over
        assert service.supervision.exit_code == 137

    def test_a_worker_that_ends_by_itself_without_an_error_is_started_again_too(self) -> None:
        service = running()
        service.end(1, 0)
        service.tick(1_000)
        assert service.started() == [1]
        assert service.phases() == [Phase.LOADING, Phase.RUNNING]

    def test_one_that_is_given_up_after_clean_ends_is_an_error(self) -> None:
        service = running(1)
        for _ in range(MOST_DEATHS):
            service.end(1, 0)
            service.tick(LONGEST_PAUSE_MS)
            service.loaded(1)
        assert service.supervision.exit_code == 1

    def test_deaths_are_forgotten_when_all_have_run_for_a_while(self) -> None:
        service = running()
        for _ in range(3 * MOST_DEATHS):
            service.end(1, 1)
            service.tick(1_000)
            service.loaded(1)
            for _ in range(QUIET_MS // 1_000 + 1):
                service.tick(1_000)
                service.report(1, 2)
        assert service.supervision.exit_code is None

    def test_a_record_that_kills_one_worker_after_the_other_is_given_up(self) -> None:
        """Each of them runs long between its deaths, but they are never all quiet."""
        service = running(2)
        for turn in range(2 * MOST_DEATHS):
            service.end(turn % 2 + 1, -11)
            if service.supervision.is_stopping:
                break
            for _ in range(60):
                service.tick(1_000)
                service.report(1, 2)
                if Phase.LOADING in service.phases():
                    service.loaded(turn % 2 + 1)
        assert service.supervision.exit_code == 139

    def test_refused_settings_are_not_tried_again(self) -> None:
        service = running(2)
        service.supervision.refused(2)
        assert ends(service.end(2, 2)) == [(1, How.GRACEFULLY)]
        service.end(1, 0)
        assert service.supervision.exit_code == 2


class TestProgress:
    def test_a_process_that_exists_and_makes_no_progress_is_replaced(self) -> None:
        service = running(2)
        for _ in range(HUNG_MS // 1_000 - 1):
            service.tick(1_000)
            service.report(1)
        assert service.events() == []
        assert ends(service.tick(1_000)) == [(2, How.AT_ONCE)], "it has not reported, and drains nothing"
        assert service.events() == ["worker_replaced"]
        service.end(2, 0)
        service.tick(1_000)
        assert service.started() == [2]

    def test_a_worker_that_reports_and_whose_handler_hangs_is_replaced(self) -> None:
        service = running(2)
        for second in range(1, HUNG_MS // 1_000):
            service.tick(1_000)
            service.report(1)
            service.report(2, stuck_ms=second * 1_000)
        service.tick(999)
        assert service.events() == []
        service.tick(1)
        assert service.phases() == [Phase.RUNNING, Phase.STOPPING]

    def test_a_worker_that_reports_and_whose_event_loop_does_not_answer_drains_nothing(self) -> None:
        service = running(1)
        for second in range(1, HUNG_MS // 1_000):
            service.tick(1_000)
            service.report(1, silent_ms=second * 1_000)
        assert service.events() == []
        assert ends(service.tick(1_000)) == [(1, How.AT_ONCE)]

    def test_one_that_does_not_stop_is_ended_at_once_and_then_killed(self) -> None:
        service = running(1)
        service.report(1, stuck_ms=HUNG_MS)
        assert ends(service.tick()) == [(1, How.GRACEFULLY)]
        assert ends(service.tick(GRACE_MS - 1)) == []
        assert ends(service.tick(1)) == [(1, How.AT_ONCE)]
        assert ends(service.tick(AT_ONCE_MS - 1)) == []
        assert ends(service.tick(1)) == [(1, How.KILLED)]
        service.end(1, -9)
        service.tick(1_000)
        assert service.started() == [1]

    def test_one_that_only_a_restart_helps_is_replaced_after_a_while(self) -> None:
        service = running(1)
        service.report(1, is_alive=False)
        service.tick(DEAD_MS - 1)
        service.report(1, is_alive=True)
        service.report(1, is_alive=False)
        service.tick(DEAD_MS - 1)
        assert service.events() == []
        service.tick(1)
        assert service.events() == ["worker_replaced"]


class TestStop:
    def test_the_first_signal_drains_all_the_second_ends_them_the_third_kills(self) -> None:
        service = running(2)
        assert ends(service.signal()) == [(1, How.GRACEFULLY), (2, How.GRACEFULLY)]
        assert ends(service.signal()) == [(1, How.AT_ONCE), (2, How.AT_ONCE)]
        assert ends(service.signal()) == [(1, How.KILLED), (2, How.KILLED)]
        service.end(1, 143)
        service.end(2, 143)
        assert service.supervision.is_over
        assert service.supervision.exit_code == 143

    def test_a_stop_has_the_exit_code_of_the_worker_that_failed_in_it(self) -> None:
        service = running(3)
        service.signal()
        for worker, code in ((1, 0), (2, 1), (3, 0)):
            service.end(worker, code)
        assert service.supervision.exit_code == 1
        service.tick(60_000)
        assert service.started() == [], "what a stop has ended is not started again"

    @pytest.mark.parametrize("exit_code", [143, 130, -2, -15])
    def test_a_stop_during_an_import_is_no_failure(self, exit_code: int) -> None:
        service = Service(2)
        assert ends(service.signal()) == [(1, How.GRACEFULLY)]
        service.end(1, exit_code)
        assert service.supervision.is_over
        assert service.supervision.exit_code == 0

    def test_a_worker_that_waits_to_be_started_again_is_not(self) -> None:
        service = running(2)
        service.end(1, 1)
        assert ends(service.signal()) == [(2, How.GRACEFULLY)]
        service.end(2, 0)
        assert service.supervision.is_over

    def test_a_worker_that_loads_when_all_stop_starts_no_other(self) -> None:
        service = Service(2)
        service.signal()
        service.loaded(1)
        assert service.started() == [1]


class Chaos:
    """Any order of events, and what holds after each of them."""

    def __init__(self, count: int) -> None:
        self.service = Service(count)
        self.processes = {1}

    def check(self) -> None:
        supervision = self.service.supervision
        for effect in self.service.did:
            if isinstance(effect, Start):
                assert effect.worker not in self.processes, "never two processes of one worker"
                assert not supervision.is_stopping
                self.processes.add(effect.worker)
            elif isinstance(effect, End):
                assert effect.worker in self.processes
        self.service.did.clear()
        with_process = {Phase.LOADING, Phase.RUNNING, Phase.STOPPING, Phase.ENDING}
        assert {w.number for w in supervision.workers if w.phase in with_process} == self.processes


@given(
    count=st.integers(1, 4),
    steps=st.lists(
        st.tuples(st.sampled_from(["load", "end", "signal", "tick", "report", "dead"]), st.integers(1, 4)),
        max_size=60,
    ),
)
def test_a_worker_has_one_process_at_most_and_none_is_forgotten(count: int, steps: list[tuple[str, int]]) -> None:
    chaos = Chaos(count)
    service = chaos.service
    service.did.clear()
    for what, worker in steps:
        acts: dict[str, Callable[[], object]] = {
            "load": lambda worker=worker: service.loaded(worker),  # type: ignore[misc]
            "report": lambda worker=worker: service.report(worker, stuck_ms=worker * 90_000),  # type: ignore[misc]
            "dead": lambda worker=worker: service.report(worker, is_alive=False),  # type: ignore[misc]
            "signal": service.signal,
            "tick": lambda worker=worker: service.tick(worker * 4_000),  # type: ignore[misc]
        }
        if what == "end":
            if worker in chaos.processes:
                chaos.processes.discard(worker)
                service.end(worker, worker - 2)
        elif what in ("signal", "tick") or worker in chaos.processes:
            acts[what]()
        chaos.check()
    service.signal()
    chaos.check()
    for worker in sorted(chaos.processes):
        service.end(worker, 0)
    assert service.supervision.is_over
