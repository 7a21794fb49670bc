"""The broker's settings that transactions obey."""

from __future__ import annotations

from broker_embedded.common.config import BrokerConfig
from ottla_wire.facts import fact


@fact
class TransactionConfig:
    max_timeout_ms: int
    timeout_check_interval_ms: int
    id_expiration_ms: int
    id_expiration_check_interval_ms: int
    verifies_partitions: bool
    add_again_ms: int
    add_for_ms: int

    @classmethod
    def of(cls, broker: BrokerConfig) -> TransactionConfig:
        return cls(
            max_timeout_ms=broker.transaction_max_timeout_ms,
            timeout_check_interval_ms=broker.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            id_expiration_ms=broker.transactional_id_expiration_ms,
            id_expiration_check_interval_ms=broker.transaction_remove_expired_transaction_cleanup_interval_ms,
            verifies_partitions=broker.transaction_partition_verification_enable,
            add_again_ms=broker.add_partitions_to_txn_retry_backoff_ms,
            add_for_ms=broker.add_partitions_to_txn_retry_backoff_max_ms,
        )
