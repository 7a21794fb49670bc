"""The KRaft metadata quorum (KIP-595, KIP-996): a state machine without I/O, and its shell.

`machine` decides; `messages` and `events` are its input, `effects` its output; `raft_quorum` has the
log, the timers and the peers. Not done: snapshots (the log is kept whole and read from its start at each start) and
changes of the voters (KIP-853: AddRaftVoter and RemoveRaftVoter are not served; the voters are those that each node is
started with).
"""
