"""Client authentication: SASL's server side, its users, and the requirements of each listener.

Sans IO: bytes in, bytes out, no socket; the time is an argument. TLS itself is the server layer's (`server.net.tls`),
what clients may do is the authorizer's, and how much of it that of `broker_embedded.quotas`.
"""
