"""The consumer group protocol of KIP-848: the broker assigns, members follow heartbeat by heartbeat.

A request is handled against the group as it is and yields records and a response (`heartbeat`, `leave`, `expiry`);
replaying the records changes the group (`group`). Assignment is pure (`assignors`), and so is the way a member moves
from what it has to what it shall have without two members owning a partition at once (`reconcile`).
"""
