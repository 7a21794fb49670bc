"""Client quotas per second, and throttle times above them (KIP-13, 124, 546, 599, 612).

Decisions only: the time is an argument, and connections are unknown here. `server.requests.client_quotas` acts on
them.
"""
