"""Rates, tokens, and whose quota holds: held against plainer models, with the time as an argument."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.records import QuotaEntity, quota_entity
from broker_embedded.quotas.limits import ClientQuotas, QuotaLimits
from broker_embedded.quotas.policy import SWEEP_FROM, ClientQuotaPolicy, WindowedRate, Windows
from broker_embedded.quotas.token_bucket import TokenBucket
from ottla_wire.protocol import ErrorCode

ALICE = quota_entity([("user", "alice")])
SPAN_MS = 11_000

pauses = st.sampled_from([0, 1, 7, 300, 999, 1_000, 1_001, 2_500, 10_000, 10_999, 11_000, 11_001, 60_000])
steps = st.lists(st.tuples(pauses, st.integers(0, 50_000)), min_size=1, max_size=60)
limits = st.integers(1, 20_000)


def new_policy(clock: ManualClock, quotas: ClientQuotas) -> ClientQuotaPolicy:
    policy = ClientQuotaPolicy(windows=Windows(), mutation_windows=Windows(), now_ms=clock.monotonic_ms)
    policy.replace(quotas)
    return policy


class RingOfSamples:
    """The rate told another way, as Kafka keeps it: a ring of samples that are emptied when they are too old."""

    def __init__(self) -> None:
        self.samples: list[list[float]] = []  # start, last event, value
        self.current = 0

    def record(self, value: float, now: int) -> None:
        if not self.samples:
            self.samples.append([now, now, 0])
        if now - self.samples[self.current][0] >= 1_000:
            self.current = (self.current + 1) % 12
            if self.current == len(self.samples):
                self.samples.append([now, now, 0])
            self.samples[self.current] = [now, now, 0]
        self.samples[self.current][1] = now
        self.samples[self.current][2] += value

    def measure(self, now: int) -> float:
        for sample in self.samples:
            if now - sample[1] >= SPAN_MS:
                sample[:] = [now, now, 0]
        elapsed = now - min(sample[0] for sample in self.samples)
        elapsed += max(0, 10 - elapsed // 1_000) * 1_000
        return sum(sample[2] for sample in self.samples) * 1_000 / max(elapsed, 1)


@given(steps=steps)
def test_a_rate_is_what_a_ring_of_samples_measures(steps: list[tuple[int, int]]) -> None:
    now = 1_000_000
    rate, ring = WindowedRate(windows=11, window_ms=1_000), RingOfSamples()
    for pause, amount in steps:
        now += pause
        rate.record(amount, now_ms=now)
        ring.record(amount, now)
        assert rate.per_second(now_ms=now) == pytest.approx(ring.measure(now))


def test_a_wait_is_the_excess_over_the_time_that_was_measured() -> None:
    rate = WindowedRate(windows=11, window_ms=1_000)
    rate.record(22, now_ms=0)
    assert rate.per_second(now_ms=0) == 2.2  # ten seconds are taken for granted
    assert rate.wait_ms(2, now_ms=0) == 1_000
    assert rate.wait_ms(2, now_ms=1_000) == 1_000  # nine of them still are
    rate.record(8, now_ms=10_500)
    assert rate.wait_ms(2, now_ms=10_500) == 4_500  # 30 in 10.5 s are 20 in 7 s


@given(steps=steps, limit=limits)
def test_a_producer_that_is_held_gets_less_than_twice_its_quota(steps: list[tuple[int, int]], limit: int) -> None:
    """A burst is held for its excess over ten seconds, and forgotten after eleven: the same burst may come again."""
    clock = ManualClock()
    policy = new_policy(clock, {ALICE: {"producer_byte_rate": float(limit)}})
    began, total, largest = clock.monotonic_ms(), 0, 0
    for pause, size in steps:
        clock.advance(pause)
        total, largest = total + size, max(largest, size)
        clock.advance(policy.produced("alice", "app", size) + 1)
        assert total <= 2 * limit * (clock.monotonic_ms() - began + SPAN_MS) / 1_000 + largest


@given(limit=st.integers(100, 20_000), share=st.floats(0.01, 0.5), pause_ms=st.integers(1, 50))
def test_a_steady_stream_gets_its_quota_and_one_span_s_burst(limit: int, share: float, pause_ms: int) -> None:
    clock = ManualClock()
    policy = new_policy(clock, {ALICE: {"producer_byte_rate": float(limit)}})
    began, total, size = clock.monotonic_ms(), 0, max(1, int(limit * share))
    for _ in range(200):
        clock.advance(pause_ms)
        total += size
        clock.advance(policy.produced("alice", "app", size))
        assert total <= limit * (clock.monotonic_ms() - began + SPAN_MS) / 1_000 + size


@given(steps=steps, limit=limits)
def test_what_consumers_are_given_is_at_most_their_quota_and_one_span_s_burst(
    steps: list[tuple[int, int]], limit: int
) -> None:
    clock = ManualClock()
    policy = new_policy(clock, {ALICE: {"consumer_byte_rate": float(limit)}})
    began, total = clock.monotonic_ms(), 0
    for pause, size in steps:
        clock.advance(pause)
        if policy.fetched("alice", "app", size) == 0:
            total += size
        assert total <= limit * (clock.monotonic_ms() - began + SPAN_MS) / 1_000


def test_what_may_be_fetched_at_once_may_be_fetched_after_a_pause() -> None:
    clock = ManualClock()
    policy = new_policy(clock, {ALICE: {"consumer_byte_rate": 1_000.0}})
    most = policy.fetchable("alice", "app")
    assert most == 10_000
    assert policy.fetched("alice", "app", most) == 0
    assert policy.fetched("alice", "app", most) == 10_000
    assert policy.fetched("alice", "app", most + 1) == 10_001  # what was refused before is not counted
    clock.advance(SPAN_MS)
    assert policy.fetched("alice", "app", most) == 0


@given(steps=steps, rate=st.integers(1, 50))
def test_strict_clients_change_as_many_partitions_as_tokens_came_and_one_request_more(
    steps: list[tuple[int, int]], rate: int
) -> None:
    clock = ManualClock()
    policy = new_policy(clock, {ALICE: {"controller_mutation_rate": float(rate)}})
    began, total = clock.monotonic_ms(), 0
    for pause, amount in steps:
        partitions = amount % 100
        clock.advance(pause)
        quota = policy.mutations("alice", "app", is_strict=True)
        refusal = None
        try:
            quota.charge(partitions)
        except BrokerError as error:
            refusal = error
        if refusal is not None:
            assert refusal.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            throttle_ms = quota.throttle_ms()
            assert throttle_ms > 0
            clock.advance(throttle_ms + 1)
            policy.mutations("alice", "app", is_strict=True).charge(0)
        else:
            total += partitions
            assert quota.throttle_ms() == 0
        assert total <= rate * (clock.monotonic_ms() - began + SPAN_MS) / 1_000 + 100


def test_a_client_that_does_not_know_the_error_may_go_on_and_is_held() -> None:
    clock = ManualClock()
    policy = new_policy(clock, {ALICE: {"controller_mutation_rate": 2.0}})
    quota = policy.mutations("alice", "app", is_strict=False)
    quota.charge(22)
    assert quota.throttle_ms() == 0
    quota.charge(3)
    assert quota.throttle_ms() == 1_500
    clock.advance(500)  # some of the debt is paid while the request waits for its answer
    assert quota.throttle_ms() == 1_000


def test_tokens_are_saved_up_to_one_span() -> None:
    bucket = TokenBucket(span_s=11)
    bucket.take(22, rate=2, now_ms=5_000)
    assert bucket.wait_ms(rate=2, now_ms=5_000) == 0
    bucket.take(2, rate=2, now_ms=1_000_000)
    bucket.take(21, rate=2, now_ms=1_000_000)
    assert bucket.wait_ms(rate=2, now_ms=1_000_000) == 500


def test_time_of_handlers_holds_nobody_for_longer_than_a_window() -> None:
    clock = ManualClock()
    policy = new_policy(clock, {ALICE: {"request_percentage": 1.0}})
    assert policy.handled("alice", "app", 0.1) == 0  # 10 % of a second, over ten seconds
    assert policy.handled("alice", "app", 0.02) == 1_000
    assert policy.handled("bob", "app", 100) == 0


def test_connections_of_an_address_are_counted_by_address() -> None:
    clock = ManualClock()
    policy = new_policy(clock, {(("ip", None),): {"connection_creation_rate": 1.0}})
    assert [policy.connected("10.0.0.1") for _ in range(11)] == [0] * 10 + [1_000]
    assert policy.connected("10.0.0.2") == 0
    policy.replace({(("ip", "10.0.0.1"),): {"connection_creation_rate": 100.0}})
    assert policy.connected("10.0.0.1") == 0
    assert [policy.connected("10.0.0.2") for _ in range(50)] == [0] * 50


@given(user=st.text(), client_id=st.none() | st.text(), size=st.integers(0, 2**31))
def test_nobody_is_held_without_a_quota(user: str, client_id: str | None, size: int) -> None:
    policy = new_policy(ManualClock(), {})
    assert policy.produced(user, client_id, size) == 0
    assert policy.fetched(user, client_id, size) == 0
    assert policy.fetchable(user, client_id) is None
    assert policy.handled(user, client_id, size) == 0
    assert policy.connected(user) == 0
    mutations = policy.mutations(user, client_id, is_strict=True)
    mutations.charge(size)
    assert mutations.throttle_ms() == 0


def test_a_use_that_no_time_can_make_good_holds_for_as_long_as_can_be_said() -> None:
    policy = new_policy(ManualClock(), {ALICE: {"producer_byte_rate": 1.0}})
    assert policy.produced("alice", None, 2**40) == 2**31 - 1


# --- whose quota holds

ENTITIES = [
    quota_entity([(kind, name) for kind, name in (("user", user), ("client-id", client)) if name != "-"])
    for user, client in product(("alice", None, "-"), ("app", None, "-"))
    if (user, client) != ("-", "-")
]
RANK = {"-": 0, None: 1}


def naive(quotas: set[QuotaEntity], user: str, client_id: str) -> QuotaEntity | None:
    """The quota of the most specific user, and among those of the most specific client id."""

    def matches(entity: QuotaEntity) -> bool:
        asked = {"user": user, "client-id": client_id}
        return all(name in (asked[kind], None) for kind, name in entity)

    def rank(entity: QuotaEntity) -> tuple[int, int]:
        parts = dict(entity)
        user_rank, client_rank = (RANK.get(parts.get(kind, "-"), 2) for kind in ("user", "client-id"))
        return user_rank, client_rank

    return max(filter(matches, quotas), key=rank, default=None)


@given(
    quotas=st.sets(st.sampled_from(ENTITIES)),
    user=st.sampled_from(["alice", "bob"]),
    client_id=st.sampled_from(["app", "other"]),
)
def test_the_most_specific_quota_holds(quotas: set[QuotaEntity], user: str, client_id: str) -> None:
    values = {entity: float(number + 1) for number, entity in enumerate(ENTITIES) if entity in quotas}
    found = QuotaLimits({entity: {"k": value} for entity, value in values.items()}, "k").of_client(user, client_id)
    wanted = naive(quotas, user, client_id)
    assert (None if found is None else found[0]) == (None if wanted is None else values[wanted])
    if found is not None and wanted is not None:
        kinds = dict(wanted)
        assert found[1] == (user if "user" in kinds else None, client_id if "client-id" in kinds else None)


@pytest.mark.parametrize("client_id", [None, ""])
def test_a_client_without_an_id_has_no_quota_of_client_ids(client_id: str | None) -> None:
    by_id = {
        quota_entity([("client-id", None)]): {"k": 1.0},
        quota_entity([("user", None), ("client-id", None)]): {"k": 2.0},
    }
    assert QuotaLimits(by_id, "k").of_client("alice", client_id) is None
    by_user = {**by_id, quota_entity([("user", None)]): {"k": 3.0}}
    assert QuotaLimits(by_user, "k").of_client("alice", client_id) == (3.0, ("alice", None))


def test_a_quota_of_another_kind_does_not_hide_a_less_specific_one() -> None:
    quotas = {ALICE: {"request_percentage": 5.0}, quota_entity([("user", None)]): {"producer_byte_rate": 7.0}}
    assert QuotaLimits(quotas, "producer_byte_rate").of_client("alice", "app") == (7.0, ("alice", None))


def test_clients_of_one_user_share_its_quota_and_a_change_keeps_what_was_measured() -> None:
    clock = ManualClock()
    policy = new_policy(clock, {ALICE: {"producer_byte_rate": 1_000.0}})
    assert policy.produced("alice", "one", 10_000) == 0
    assert policy.produced("alice", "two", 1_000) == 1_000
    policy.replace({ALICE: {"producer_byte_rate": 10_000.0}})
    assert policy.produced("alice", "one", 0) == 0
    policy.replace({ALICE: {"producer_byte_rate": 500.0}})
    assert policy.produced("alice", "one", 0) == 12_000


def test_clients_that_have_gone_are_forgotten() -> None:
    clock = ManualClock()
    policy = new_policy(clock, {quota_entity([("client-id", None)]): {"producer_byte_rate": 1.0}})
    for number in range(SWEEP_FROM):
        policy.produced("alice", f"first-{number}", 1)
    clock.advance(SPAN_MS)
    policy.produced("alice", "second", 1)
    assert len(policy._produced._meters) == 1
