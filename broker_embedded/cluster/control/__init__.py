"""The control API: what tests in other processes and languages do to a cluster, as JSON over loopback HTTP.

`ControlServer` serves a `LocalControl`; a test in this process calls it directly.
"""

from broker_embedded.cluster.control.server import ControlServer as ControlServer
from broker_embedded.cluster.control.waits import WantedState as WantedState
from broker_embedded.cluster.control.waits import wait_for as wait_for
