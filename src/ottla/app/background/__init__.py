"""Parts that run beside an app's handlers: a scheduler, an outbox relay, and its producers."""
