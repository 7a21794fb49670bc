"""Faults on demand: of requests, of links between nodes, of disks.

`Faults` holds the faults of a cluster; each broker has a view of it that its dispatcher and handlers ask.
"""

from broker_embedded.cluster.faults.actions import Action, Corrupt, Delay, Disconnect, Fail, Hold, Phase
from broker_embedded.cluster.faults.disks import BadDisk, Disks
from broker_embedded.cluster.faults.fault import Fault
from broker_embedded.cluster.faults.faulty_filesystem import FaultyFileSystem
from broker_embedded.cluster.faults.links import Links
from broker_embedded.cluster.faults.model import Faults
from broker_embedded.cluster.faults.on_loop import OnLoop
from broker_embedded.cluster.faults.selector import InvalidFault, RequestSource, Selector

__all__ = [
    "Action",
    "BadDisk",
    "Corrupt",
    "Delay",
    "Disconnect",
    "Disks",
    "Fail",
    "Fault",
    "Faults",
    "FaultyFileSystem",
    "Hold",
    "InvalidFault",
    "Links",
    "OnLoop",
    "Phase",
    "RequestSource",
    "Selector",
]
