"""Asyncio group members: the client, the engine around a session, worker tasks, and the pulled consumer."""
