"""What clients may use per second, and how long they are held when they used more (KIP-13, 124, 546, 599, 612).

Decisions only: the time is an argument, and nobody here knows connections. `server.requests.client_quotas` acts on
them.
"""
