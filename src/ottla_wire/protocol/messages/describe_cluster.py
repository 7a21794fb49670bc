"""DescribeCluster: cluster id, controller and brokers.

Version 1 may ask for controllers, 2 shows fenced brokers.
"""

from __future__ import annotations

VERSIONS = "0-2"
FLEXIBLE = "0+"

REQUEST = """
include_cluster_authorized_operations  bool
endpoint_type                          int8  1+ =1
include_fenced_brokers                 bool  2+
"""

RESPONSE = """
throttle_time_ms               int32
error_code                     int16
error_message                  string?  =null
endpoint_type                  int8     1+ =1
cluster_id                     string
controller_id                  int32    =-1
brokers                        [DescribeClusterBroker]
    broker_id                  int32
    host                       string
    port                       int32
    rack                       string?  =null
    is_fenced                  bool     2+
cluster_authorized_operations  int32    =-2147483648
"""
