"""The control API: what tests in other processes and languages do to a cluster, as JSON over loopback HTTP.

`ControlServer` serves a `ClusterControl`; the same protocol is what a test in this process calls directly.
"""

from broker_embedded.cluster.control.protocol import ClusterControl
from broker_embedded.cluster.control.server import ControlServer
from broker_embedded.cluster.control.waits import WantedState, wait_for

__all__ = ["ClusterControl", "ControlServer", "WantedState", "wait_for"]
