"""The member of a share group, sans IO: heartbeats, leases, share sessions, and what to ask of which broker."""
