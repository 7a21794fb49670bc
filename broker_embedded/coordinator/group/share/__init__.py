"""Membership of share groups (KIP-932): the broker assigns, several members may have the same partition.

A request is handled against the group as it is and yields records and a response; replaying the records changes the
group. There is nothing to reconcile: a member has its new assignment with its next heartbeat.
"""
