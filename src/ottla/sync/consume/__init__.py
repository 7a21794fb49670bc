"""Threaded group members: the client, the member around a session, worker threads, and the pulled consumer."""
