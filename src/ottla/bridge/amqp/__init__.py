"""The consumer of an AMQP 0-9-1 queue."""
