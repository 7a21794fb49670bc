"""Partitioners agree with Java and librdkafka bit for bit, and do with null keys what their table says."""

from __future__ import annotations

import itertools
import random
import warnings
from collections import Counter

import pytest
from confluent_kafka import Producer as ConfluentProducer
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ConfigError, InputError
from ottla.key_hashes import crc32, fnv1a, murmur2
from ottla.producer import PARTITIONERS, NullKeysInOnePartition, make_partitioner
from ottla.producer.partitioners import NullKeys, Sticky

SIX = list(range(6))

# Published by Kafka's UtilsTest and librdkafka's unit tests; FNV-1a by librdkafka from Go's hash/fnv.
KNOWN = [
    (b"kafka", 0xD067CF64, 0x0D33C4E1),
    (b"giberish123456789", 0x8F552B0C, 0x77A58295),
    (b"1234", 0x9FC97B14, 0x023BDD03),
    (b"234", 0xE7C009CA, 0x2DEA3CD2),
    (b"34", 0x873930DA, 0x740FA83E),
    (b"4", 0x5A4B5CA1, 0x310CA263),
    (b"PreAmbleWillBeRemoved,ThePrePartThatIs", 0x78424F1C, 0x65CBD69C),
    (b"reAmbleWillBeRemoved,ThePrePartThatIs", 0x4A62B377, 0x6E49C79A),
    (b"eAmbleWillBeRemoved,ThePrePartThatIs", 0xE0E4E09E, 0x69EED356),
    (b"AmbleWillBeRemoved,ThePrePartThatIs", 0x62B8B43F, 0x6ABCC023),
    (b"", 0x106E08D9, 0x7EE3623B),
]
# Kafka's UtilsTest, as signed numbers.
KNOWN_SIGNED = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


def signed(number: int) -> int:
    return number - (1 << 32) if number & 0x80000000 else number


def java_murmur2(data: bytes) -> int:
    """Kafka's algorithm with Java's own arithmetic: signed 32-bit numbers, unsigned shifts spelt out."""

    def int32(number: int) -> int:
        return signed(number & 0xFFFFFFFF)

    def shift_right(number: int, bits: int) -> int:
        return (number & 0xFFFFFFFF) >> bits

    m = 0x5BD1E995
    h = int32(0x9747B28C ^ len(data))
    for i in range(0, len(data) - len(data) % 4, 4):
        k = int32(data[i] | data[i + 1] << 8 | data[i + 2] << 16 | data[i + 3] << 24)
        k = int32(k * m)
        k = int32(k ^ shift_right(k, 24))
        k = int32(k * m)
        h = int32(int32(h * m) ^ k)
    tail = data[len(data) - len(data) % 4 :]
    for position in reversed(range(len(tail))):
        h = int32(h ^ tail[position] << (8 * position))
    if tail:
        h = int32(h * m)
    h = int32(h ^ shift_right(h, 13))
    h = int32(h * m)
    return int32(h ^ shift_right(h, 15))


@pytest.mark.parametrize(("key", "murmur", "fnv"), KNOWN)
def test_hashes_have_their_published_values(key: bytes, murmur: int, fnv: int) -> None:
    assert murmur2(key) == murmur
    assert fnv1a(key) == fnv


@pytest.mark.parametrize(("key", "hashed"), KNOWN_SIGNED)
def test_murmur2_has_the_values_of_kafkas_own_tests(key: bytes, hashed: int) -> None:
    assert signed(murmur2(key)) == hashed


def test_crc32_has_its_check_value() -> None:
    assert crc32(b"123456789") == 0xCBF43926


@given(st.binary(max_size=200))
def test_murmur2_is_java_arithmetic(key: bytes) -> None:
    assert signed(murmur2(key)) == java_murmur2(key)


@pytest.mark.parametrize(
    "name", ["murmur2", "murmur2_random", "consistent", "consistent_random", "fnv1a", "fnv1a_random"]
)
def test_thousands_of_keys_go_where_librdkafka_puts_them(name: str) -> None:
    """librdkafka partitions for real, into its own mock cluster: topics there have four partitions."""
    rng = random.Random(7)
    keys = sorted({rng.randbytes(rng.randrange(1, 40)) for _ in range(4_000)})
    placed: dict[bytes, int] = {}
    client = ConfluentProducer(
        {
            "bootstrap.servers": "ignored",
            "test.mock.num.brokers": 1,
            "partitioner": "murmur2_random" if name == "murmur2" else name,
            "log_level": 0,
            "linger.ms": 1,
        }
    )
    for key in keys:
        client.produce(
            "t", b"v", key, on_delivery=lambda _, message: placed.update({message.key(): message.partition()})
        )
    assert client.flush(20) == 0
    count = len(client.list_topics("t", timeout=5).topics["t"].partitions)
    partitioner = make_partitioner(name, random=rng)
    every = list(range(count))
    assert count > 1
    assert {key: partitioner.choose(key, every, every, topic="t") for key in keys} == placed


@pytest.mark.parametrize("name", ["murmur2", "murmur2_random", "consistent_random", "fnv1a_random"])
def test_null_keys_are_spread(name: str) -> None:
    partitioner = make_partitioner(name, random=random.Random(1))
    seen: Counter[int] = Counter()
    for _ in range(60):
        seen[partitioner.choose(None, SIX, SIX, topic="t")] += 1
        partitioner.batch_is_full("t")
    assert set(seen) == set(SIX)


@pytest.mark.parametrize("name", ["consistent", "fnv1a"])
def test_null_keys_in_one_partition_are_warned_of_once(name: str) -> None:
    partitioner = make_partitioner(name, random=random.Random(1))
    assert partitioner.null_keys is NullKeys.ONE_PARTITION
    with pytest.warns(
        NullKeysInOnePartition, match=f"{name} puts every record without a key into one partition"
    ) as seen:
        chosen = {partitioner.choose(None, SIX, SIX, topic="t") for _ in range(50)}
    assert len(chosen) == 1
    assert len(seen) == 1


def test_an_empty_key_is_a_key_except_where_librdkafka_says_otherwise() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("murmur2", "murmur2_random", "consistent", "fnv1a", "fnv1a_random"):
            partitioner = make_partitioner(name, random=random.Random(1))
            assert len({partitioner.choose(b"", SIX, SIX, topic="t") for _ in range(50)}) == 1
        partitioner = make_partitioner("consistent_random", random=random.Random(1))
        assert len({partitioner.choose(b"", SIX, SIX, topic="t") for _ in range(50)}) > 1


def test_random_ignores_the_key() -> None:
    partitioner = make_partitioner("random", random=random.Random(1))
    assert {partitioner.choose(b"same", SIX, SIX, topic="t") for _ in range(100)} == set(SIX)


def test_round_robin_gives_each_partition_its_turn_per_topic() -> None:
    partitioner = make_partitioner("round_robin", random=random.Random(1))
    turns = [partitioner.choose(b"k", SIX, SIX, topic="a") for _ in range(12)]
    assert Counter(turns) == dict.fromkeys(SIX, 2)
    assert [(turn - turns[0]) % 6 for turn in turns] == [*SIX, *SIX]
    partitioner.choose(b"k", SIX, SIX, topic="b")
    assert partitioner.choose(b"k", SIX, SIX, topic="a") == turns[0]


def test_sticky_stays_until_the_batch_is_full_and_then_moves_to_another() -> None:
    sticky = Sticky(random=random.Random(1))
    last = None
    for _ in range(30):
        chosen = {sticky.choose(b"k%d" % n, SIX, SIX, topic="t") for n in range(20)}
        assert len(chosen) == 1
        assert chosen != last
        last = chosen
        sticky.batch_is_full("t")


def test_sticky_moves_by_itself_where_nobody_sees_batches() -> None:
    sticky = Sticky(random=random.Random(1), records_per_turn=10)
    chosen = [sticky.choose(None, SIX, SIX, topic="t") for _ in range(100)]
    runs = [set(chosen[start : start + 10]) for start in range(0, 100, 10)]
    assert all(len(run) == 1 for run in runs)
    assert all(one != other for one, other in itertools.pairwise(runs))


@pytest.mark.parametrize("name", ["random", "round_robin", "sticky", "murmur2", "murmur2_random"])
def test_a_partition_without_a_leader_is_passed_over_while_there_is_a_choice(name: str) -> None:
    partitioner = make_partitioner(name, random=random.Random(1))
    chosen = set()
    for _ in range(50):
        chosen.add(partitioner.choose(None, SIX, [1, 4], topic="t"))
        partitioner.batch_is_full("t")
    assert chosen == {1, 4}
    assert partitioner.choose(None, SIX, [], topic="t") in SIX


def test_sticky_leaves_a_partition_that_lost_its_leader() -> None:
    sticky = Sticky(random=random.Random(1))
    first = sticky.choose(None, SIX, SIX, topic="t")
    others = [partition for partition in SIX if partition != first]
    assert sticky.choose(None, SIX, others, topic="t") in others


def test_explicit_refuses_to_choose() -> None:
    with pytest.raises(InputError, match="t: found no partition, wanted send"):
        make_partitioner("explicit", random=random.Random(1)).choose(b"k", SIX, SIX, topic="t")


def test_a_function_is_a_partitioner_and_its_answer_is_checked() -> None:
    def last(key: bytes | None, partitions: object, available: object) -> int:
        return 5 if key == b"good" else 17

    partitioner = make_partitioner(last, random=random.Random(1))
    assert partitioner.choose(b"good", SIX, SIX, topic="t") == 5
    with pytest.raises(InputError, match="t: partitioner last chose 17, wanted one of 0 to 5"):
        partitioner.choose(b"bad", SIX, SIX, topic="t")


def test_an_unknown_partitioner_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="partitioner: found 'murmur3', wanted one of murmur2, murmur2_random"):
        make_partitioner("murmur3", random=random.Random(1))
    for name in PARTITIONERS:
        assert make_partitioner(name, random=random.Random(1)).name == name
