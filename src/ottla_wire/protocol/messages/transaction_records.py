"""Records of `__transaction_state`, and the values of control batches and of the producer snapshot."""

from __future__ import annotations

RECORDS = """
record TransactionLogKey  0
    transactional_id  string

record TransactionLogValue  0-1  flexible=1+
    producer_id                           int64
    previous_producer_id                  int64  1+ =-1 @0
    next_producer_id                      int64  1+ =-1 @1
    producer_epoch                        int16
    transaction_timeout_ms                int32
    transaction_status                    int8
    transaction_partitions                [PartitionsSchema]?
        topic                             string
        partition_ids                     [int32]
    transaction_last_update_timestamp_ms  int64
    transaction_start_timestamp_ms        int64
    client_transaction_version            int16  1+ @2
"""
