"""Faults on demand: of requests, of links between nodes, of disks.

`Faults` holds the faults of a cluster; each broker has a view of it that its dispatcher and handlers ask.
"""

from broker_embedded.cluster.faults.actions import Action as Action
from broker_embedded.cluster.faults.actions import Corrupt as Corrupt
from broker_embedded.cluster.faults.actions import Delay as Delay
from broker_embedded.cluster.faults.actions import Disconnect as Disconnect
from broker_embedded.cluster.faults.actions import Fail as Fail
from broker_embedded.cluster.faults.actions import Hold as Hold
from broker_embedded.cluster.faults.actions import Phase as Phase
from broker_embedded.cluster.faults.disks import BadDisk as BadDisk
from broker_embedded.cluster.faults.disks import Disks as Disks
from broker_embedded.cluster.faults.fault import Fault as Fault
from broker_embedded.cluster.faults.faulty_filesystem import FaultyFileSystem as FaultyFileSystem
from broker_embedded.cluster.faults.links import Links as Links
from broker_embedded.cluster.faults.model import Faults as Faults
from broker_embedded.cluster.faults.on_loop import OnLoop as OnLoop
from broker_embedded.cluster.faults.selector import InvalidFault as InvalidFault
from broker_embedded.cluster.faults.selector import RequestSource as RequestSource
from broker_embedded.cluster.faults.selector import Selector as Selector
