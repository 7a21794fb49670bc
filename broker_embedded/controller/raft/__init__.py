"""The metadata quorum as KRaft does it (KIP-595, KIP-996): a state machine without I/O, and the shell that runs it.

`machine` decides; `messages`, `events` and `effects` are what it is told and what it wants done; `raft_quorum` has the
log, the timers and the peers. Not done: snapshots (the log is kept whole and read from its start at each start) and
changes of the voters (KIP-853: AddRaftVoter and RemoveRaftVoter are not served; the voters are those that each node is
started with).
"""
