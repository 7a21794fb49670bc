"""AllocateProducerIds: a broker asks the controller for a block of producer ids.

Between broker and controller.
"""

from __future__ import annotations

VERSIONS = "0"
FLEXIBLE = "0+"

REQUEST = """
broker_id     int32
broker_epoch  int64  =-1
"""

RESPONSE = """
throttle_time_ms   int32
error_code         int16
producer_id_start  int64
producer_id_len    int32
"""
