"""The control API: what tests in other processes and languages do to a cluster, as JSON over loopback HTTP.

`ControlServer` serves a `LocalControl`; a test in this process calls it directly.
"""

from broker_embedded.cluster.control.server import ControlServer
from broker_embedded.cluster.control.waits import WantedState, wait_for

__all__ = ["ControlServer", "WantedState", "wait_for"]
