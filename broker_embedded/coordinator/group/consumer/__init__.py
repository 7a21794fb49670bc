"""The consumer group protocol of KIP-848: the broker assigns, and members follow with each heartbeat.

A request is handled against the current state of the group and yields records and a response (`heartbeat`, `leave`,
`expiry`); replaying the records changes the group (`group`). Assignment is pure (`assignors`), and so is `reconcile`,
which moves a member from its current partitions to its target without two members owning a partition at once.
"""
