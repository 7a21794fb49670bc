"""Random members in a classic group: they join, sync, fall silent, leave, restart, and the log is slow, fails, or is
read again after a restart. Whatever the order, the promises hold."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker_embedded.coordinator.group.classic import ClassicGroup, Leaving, State
from broker_embedded.coordinator.group.classic.group import StoringAssignment
from ottla_wire.protocol import ErrorCode

SESSION_MS = 10_000
REBALANCE_MS = 30_000
NEW_MEMBER_MS = 300_000


class Client:
    """What a member believes."""

    def __init__(self, name: str, *, is_static: bool) -> None:
        self.name = name
        self.instance = name if is_static else None
        self.member_id = ""
        self.generation = -1
        self.join_answer: Any = None
        self.joining: int | None = None
        self.syncing: int | None = None

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.join_answer = None


def plan_of(generation: int, member_ids: list[str]) -> dict[str, bytes]:
    return {member_id: f"{generation}/{member_id}".encode() for member_id in member_ids}


def machine_for(driver: Any) -> type[RuleBasedStateMachine]:
    class ClassicGroups(RuleBasedStateMachine):
        @initialize(delay=st.sampled_from([0, 0, 2_000]), max_size=st.sampled_from([2, 100]))
        def begin(self, delay: int, max_size: int) -> None:
            self.d = driver(initial_rebalance_delay_ms=delay, max_size=max_size)
            self.clients = {
                **{name: Client(name, is_static=False) for name in ("a", "b", "c")},
                **{name: Client(name, is_static=True) for name in ("x", "y")},
            }
            self.leaders: dict[int, str] = {}
            self.protocols: dict[int, str] = {}
            self.plans: dict[int, dict[str, bytes]] = {}
            self.predecessors: dict[str, str] = {}
            self.highest_generation = 0

        # -- what may happen

        names = st.sampled_from(["a", "b", "c", "x", "y"])

        @rule(name=names, version=st.sampled_from([0, 0, 1]), keeps_id=st.sampled_from([True, True, True, False]))
        def join(self, name: str, version: int, keeps_id: bool) -> None:
            client = self.clients[name]
            if not keeps_id:
                client.forget()
            self.send_join(client, version)

        def send_join(self, client: Client, version: int = 0) -> None:
            """A member that is told its id first comes back with it at once, as clients do."""
            for _ in range(2):
                client.joining = self.d.join(
                    client.member_id,
                    instance=client.instance,
                    protocols=(("range", bytes([version])), ("roundrobin", bytes([version]))),
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    known_id=True,
                )
                answer = self.d.answers.get(client.joining)
                self.listen()
                if answer is None or answer.error is not ErrorCode.MEMBER_ID_REQUIRED:
                    return

        @rule(name=names)
        def give_out_an_id_that_is_not_used(self, name: str) -> None:
            if self.clients[name].instance is None:
                self.d.join(known_id=True, session_timeout_ms=SESSION_MS)

        @rule(group_syncs=st.booleans())
        def everybody_does_what_it_should(self, group_syncs: bool) -> None:
            """Members send heartbeats, join when told to, and sync: the group gets on."""
            members = [client for client in self.clients.values() if client.member_id]
            for client in members:
                self.heartbeat(client.name)
            for client in members:
                if client.member_id and client.joining is None:
                    self.send_join(client)
            if group_syncs:
                for client in members:
                    if client.syncing is None:
                        self.sync(client.name, sends_plan=True)

        @rule(name=names)
        def send_the_same_again(self, name: str) -> None:
            """The client lost its connection and does not know whether it was heard."""
            client = self.clients[name]
            if client.joining is not None:
                self.send_join(client)
            elif client.syncing is not None:
                self.sync(name, sends_plan=True)

        @rule()
        def nothing_but_heartbeats_for_a_while(self) -> None:
            """Nobody joins or syncs who should: those who wait are let go by the deadlines of the two phases."""
            waiting = set(self.d.waiting)
            for _ in range(2 * REBALANCE_MS // 2_000 + 2):
                self.d.pass_ms(2_000)
                for name in self.clients:
                    self.heartbeat(name)
            assert self.d.hold_stores or not waiting & self.d.waiting.keys(), (
                "a phase ends without those who are missing"
            )

        @rule(name=names, sends_plan=st.booleans())
        def sync(self, name: str, sends_plan: bool) -> None:
            client = self.clients[name]
            if client.join_answer is None:
                return
            answer = client.join_answer
            plan: dict[str, bytes] = {}
            if answer.leader == client.member_id and not answer.skip_assignment and sends_plan:
                plan = plan_of(client.generation, [member.member_id for member in answer.members])
            is_accepted = (
                self.d.group.state is State.COMPLETING_REBALANCE
                and self.d.group.generation == client.generation
                and self.d.group.is_leader(client.member_id)
                and client.member_id in self.d.group.members
                and not self.is_a_plan_on_its_way(client.generation)
            )
            if is_accepted:
                self.plans[client.generation] = plan
            client.syncing = self.d.sync(
                client.member_id, client.generation, plan, instance=client.instance, protocol_name=answer.protocol_name
            )
            self.listen()

        def is_a_plan_on_its_way(self, generation: int) -> bool:
            """Other stores may be: of an older plan, or of a group that became empty while the log was slow."""
            return any(
                isinstance(storing, StoringAssignment) and storing.generation == generation
                for storing in self.d.group.storing.values()
            )

        @rule(name=names)
        def heartbeat(self, name: str) -> None:
            client = self.clients[name]
            if client.member_id:
                error = self.d.heartbeat(client.member_id, client.generation, instance=client.instance)
                if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                    client.forget()
            self.listen()

        @rule(name=names)
        def leave(self, name: str) -> None:
            client = self.clients[name]
            if client.member_id:
                self.d.leave(Leaving(member_id=client.member_id, group_instance_id=client.instance))
                client.forget()
            self.listen()

        @rule(ms=st.sampled_from([100, 2_000, 5_000, SESSION_MS, REBALANCE_MS]))
        def time_passes(self, ms: int) -> None:
            self.d.pass_ms(ms)
            self.listen()

        @rule()
        def the_log_gets_slow(self) -> None:
            self.d.hold_stores = True

        @precondition(lambda self: self.d.hold_stores)
        @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR]))
        def the_log_answers(self, error: ErrorCode) -> None:
            self.d.hold_stores = False
            self.d.release_stores(error)
            self.listen()

        @rule()
        def the_broker_restarts(self) -> None:
            """What was stored is restored; what was on its way is lost."""
            self.d.unload(ErrorCode.NOT_COORDINATOR)
            assert not self.d.waiting, "everybody was told"
            self.listen()
            durable = [store for store in self.d.stores if store not in self.d.held]
            self.d.held.clear()
            self.d.hold_stores = False
            config = self.d.group.config
            if durable:
                restored = ClassicGroup.restore("g", durable[-1].snapshot, config=config, now_ms=self.d.now_ms)
            else:
                restored = ClassicGroup("g", config)
            self.d.group = restored
            # Generations that were never stored may be numbered again.
            self.highest_generation = restored.generation
            for known in (self.leaders, self.protocols, self.plans):
                for generation in [one for one in known if one > restored.generation]:
                    del known[generation]

        # -- what members learn

        def listen(self) -> None:
            for client in self.clients.values():
                if client.joining in self.d.answers:
                    self.heard_join(client, self.d.answers[client.joining])
                    client.joining = None
                if client.syncing in self.d.answers:
                    self.heard_sync(client, self.d.answers[client.syncing])
                    client.syncing = None

        def heard_join(self, client: Client, answer: Any) -> None:
            client.join_answer = None
            if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
                return
            if answer.error is not ErrorCode.NONE:
                if answer.error is not ErrorCode.REBALANCE_IN_PROGRESS:
                    client.forget()
                return
            client.member_id, client.generation, client.join_answer = answer.member_id, answer.generation, answer
            protocol = self.protocols.setdefault(answer.generation, answer.protocol_name)
            assert answer.protocol_name == protocol, "one generation, one protocol"
            leader = self.leaders.setdefault(answer.generation, answer.leader)
            is_takeover = answer.skip_assignment or client.instance is not None
            assert answer.leader == leader or is_takeover, "one generation, one leader"
            if answer.members:
                assert answer.leader == answer.member_id, "only the leader sees the members"

        def heard_sync(self, client: Client, answer: Any) -> None:
            if answer.error is not ErrorCode.NONE or not answer.assignment:
                return
            generation, _, owner = answer.assignment.decode().partition("/")
            plan = self.plans[int(generation)]
            assert plan[owner] == answer.assignment, "an assignment comes from the plan that the leader sent"
            if client.instance is None:
                assert owner == client.member_id, "a member gets its own part"
                assert int(generation) == client.generation, "and of the generation it asked for"

        # -- what always holds

        @invariant()
        def generations_never_go_back(self) -> None:
            if hasattr(self, "d"):
                assert self.d.group.generation >= self.highest_generation
                self.highest_generation = self.d.group.generation

        @invariant()
        def the_group_is_in_order(self) -> None:
            if not hasattr(self, "d"):
                return
            group = self.d.group
            assert (group.state is State.EMPTY) <= (not group.members)
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                assert group.members
                assert group.leader in group.members
                assert group.protocol in group.candidates()
            assert not group.pending_join.keys() & group.members.keys()
            assert group.pending_sync <= group.members.keys()
            static = [member for member in group.members.values() if member.is_static]
            assert {member.group_instance_id: member.member_id for member in static} == group.static_members
            waiting = {member.awaiting_join for member in group.members.values()}
            waiting |= {member.awaiting_sync for member in group.members.values()}
            assert self.d.waiting.keys() == waiting - {None}, "who waits is known to the group, and nobody else"

        @invariant()
        def in_a_stable_group_nobody_waits_for_an_assignment(self) -> None:
            if hasattr(self, "d") and self.d.group.state is State.STABLE:
                assert all(member.awaiting_sync is None for member in self.d.group.members.values())

        @invariant()
        def a_deadline_is_never_overslept(self) -> None:
            if hasattr(self, "d"):
                earliest = self.d.group.earliest_deadline_ms()
                assert earliest is None or self.d.group.wake_at_ms <= earliest

        def teardown(self) -> None:
            """Everybody falls silent: whoever waits is answered, and the group ends empty."""
            if not hasattr(self, "d"):
                return
            self.d.hold_stores = False
            self.d.release_stores()
            for _ in range(6):
                self.d.pass_ms(NEW_MEMBER_MS + REBALANCE_MS + SESSION_MS)
            assert not self.d.waiting, "nobody waits for ever"
            assert self.d.group.state is State.EMPTY
            assert self.d.group.wake_at_ms is None

    return ClassicGroups


def test_whatever_members_the_clock_and_the_log_do_the_promises_hold(driver):
    examples = max(200, settings.default.max_examples)
    run_state_machine_as_test(machine_for(driver), settings=settings(stateful_step_count=50, max_examples=examples))
