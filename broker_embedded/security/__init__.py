"""Who a client is: SASL's server side, the users it knows, and what a listener asks of whoever connects.

Sans IO: bytes in, bytes out, no socket; the time is an argument. TLS itself is the server layer's (`server.net.tls`),
what clients may do is the authorizer's, and how much of it that of `broker_embedded.quotas`.
"""
