"""Records written in a database transaction, and the decisions of the relay that writes them to Kafka."""

from ottla.outbox.outbox import Outbox as Outbox
