"""Threaded group members: the client, the engine around a session, worker threads, and the pulled consumer."""
