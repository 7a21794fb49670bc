"""Asyncio group members: the client, the member around a session, worker tasks, and the pulled consumer."""
