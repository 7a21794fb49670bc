"""Records that are written in a database transaction, and what a relay decides that writes them to Kafka."""

from ottla.outbox.outbox import Outbox

__all__ = ["Outbox"]
