"""What to do with a partition whose wanted offsets are gone: `onDataLoss`, a word for all or one for each partition."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.records import TopicPartition
from ottla.wire_client import OnDataLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPolicy:
    """The policy of each partition; what names none has `default`."""

    default: OnDataLoss = OnDataLoss.FAIL
    by_topic: tuple[tuple[str, OnDataLoss], ...] = ()
    by_partition: tuple[tuple[TopicPartition, OnDataLoss], ...] = ()

    def of(self, partition: TopicPartition) -> OnDataLoss:
        for named, policy in self.by_partition:
            if named == partition:
                return policy
        return dict(self.by_topic).get(partition.topic, self.default)


DEFAULT_LOSS_POLICY = LossPolicy()


def parse_loss_policy(text: str, *, default: OnDataLoss) -> LossPolicy:
    """Parse `earliest`, or JSON: `{"logs": "skip", "payments": {"0": "fail", "3": "latest"}}`."""
    if not text.strip().startswith("{"):
        return LossPolicy(default=_word(text))
    words: dict[str, str] = {}
    words_of_partitions: dict[TopicPartition, str] = {}
    try:
        for topic, policy in read_json(text).items():
            if isinstance(policy, str):
                words[topic] = policy
            else:
                words_of_partitions |= {TopicPartition(topic, int(n)): str(word) for n, word in policy.items()}
    except (ValueError, AttributeError):
        raise ConfigError(
            f'onDataLoss: found {text!r}, wanted a word, or JSON like {{"logs": "skip", "orders": {{"0": "fail"}}}}'
        ) from None
    return LossPolicy(
        default=default,
        by_topic=tuple((topic, _word(word)) for topic, word in words.items()),
        by_partition=tuple((partition, _word(word)) for partition, word in words_of_partitions.items()),
    )


def _word(text: str) -> OnDataLoss:
    try:
        return OnDataLoss(text.strip().lower())
    except ValueError:
        raise ConfigError(f"onDataLoss: found {text!r}, wanted {', '.join(p.value for p in OnDataLoss)}") from None
