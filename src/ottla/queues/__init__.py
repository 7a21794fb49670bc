"""Queues on Kafka's share groups (KIP-932): records leased one by one, accepted, released or rejected.

`core` decides, without IO; `io` talks to brokers, in threads of its own, whatever runs the handlers; `queue` and
`async_queue` are for a loop of one's own. `App.queue` (in `ottla.app`) stands on the same parts.
"""
