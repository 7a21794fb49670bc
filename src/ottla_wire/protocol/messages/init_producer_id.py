"""InitProducerId: a producer id and epoch, for idempotence or a transactional id.

3+ lets a producer bump its own epoch (KIP-360); 6 knows two-phase commit (KIP-939).
"""

from __future__ import annotations

VERSIONS = "0-6"
FLEXIBLE = "2+"

REQUEST = """
transactional_id        string?
transaction_timeout_ms  int32
producer_id             int64  3+ =-1
producer_epoch          int16  3+ =-1
enable2_pc              bool   6+
keep_prepared_txn       bool   6+
"""

RESPONSE = """
throttle_time_ms            int32
error_code                  int16
producer_id                 int64  =-1
producer_epoch              int16
ongoing_txn_producer_id     int64  6+ =-1
ongoing_txn_producer_epoch  int16  6+ =-1
"""
