"""The scheduler against a model: a list that is gone around, with debts written beside it.

After every turn: whoever stands in the ring has been passed by each other key once at most, and once more for each turn
of its own that a debt has eaten.
"""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.consumer.scheduling.scheduler import DeficitRoundRobin

KEYS = st.sampled_from("ABCDE")


class SchedulerBesideAModel(RuleBasedStateMachine):
    @initialize(quantum=st.integers(1, 20), standing=st.lists(KEYS, unique=True))
    def start(self, quantum: int, standing: list[str]) -> None:
        self.quantum = quantum
        self.scheduler: DeficitRoundRobin[str] = DeficitRoundRobin(quantum=quantum)
        self.ring: list[str] = []
        self.debts: dict[str, int] = defaultdict(int)
        self.weights: dict[str, int] = defaultdict(lambda: 1)
        self.passed_by: dict[str, dict[str, int]] = {}
        self.eaten: dict[str, int] = {}
        for key in standing:
            self.activate(key)

    @rule(key=KEYS)
    def activate(self, key: str) -> None:
        self.scheduler.activate(key)
        if key not in self.ring:
            self.ring.append(key)
            self.passed_by[key] = defaultdict(int)
            self.eaten[key] = 0

    @rule(key=KEYS)
    def deactivate(self, key: str) -> None:
        self.scheduler.deactivate(key)
        if key in self.ring:
            self.ring.remove(key)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.scheduler.forget(key)
        if key in self.ring:
            self.ring.remove(key)
        self.debts.pop(key, None)
        self.weights.pop(key, None)

    @rule(key=KEYS, weight=st.integers(1, 3))
    def set_weight(self, key: str, weight: int) -> None:
        self.scheduler.set_weight(key, weight)
        self.weights[key] = weight

    @rule(used=st.sampled_from([0, 1, "half", "all", "all and a record", "far more"]), has_more=st.booleans())
    def a_turn(self, used: int | str, has_more: bool) -> None:
        found = self.scheduler.next_turn()
        expected = self.turn_of_the_model()
        assert found == expected
        if found is None:
            return
        key, allowance = found
        for other in self.ring:
            self.passed_by[other][key] += 1
            assert self.passed_by[other][key] <= 1 + self.eaten[other], f"{key} passed {other} twice"
        cost = {
            "half": allowance // 2,
            "all": allowance,
            "all and a record": allowance + 3,
            "far more": allowance + 5 * self.quantum,
        }.get(str(used), used if isinstance(used, int) else 0)
        self.scheduler.spent(key, allowance=allowance, cost=cost)
        if cost > allowance:
            self.debts[key] = cost - allowance
        if has_more:
            self.activate(key)

    def turn_of_the_model(self) -> tuple[str, int] | None:
        while self.ring:
            key = self.ring.pop(0)
            allowance = self.quantum * self.weights[key] - self.debts.pop(key, 0)
            if allowance > 0:
                return key, allowance
            self.debts[key] = -allowance
            self.eaten[key] += 1
            self.ring.append(key)
        return None

    @invariant()
    def the_same_keys_stand_in_the_ring(self) -> None:
        if hasattr(self, "ring"):
            assert len(self.scheduler) == len(self.ring)
            assert all(key in self.scheduler for key in self.ring)


SchedulerBesideAModel.TestCase.settings = settings(stateful_step_count=50)
TestSchedulerBesideAModel = SchedulerBesideAModel.TestCase
