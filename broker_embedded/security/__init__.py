"""Who a client is: SASL's server side, the users it knows, and what a listener asks of whoever connects.

Sans IO: bytes in, bytes out, no socket, no clock. TLS itself is the server layer's (`server.tls`). There are no ACLs
and no quotas: who is let in may do everything.
"""
