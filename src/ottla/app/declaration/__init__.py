"""What a user declares on an app or a router: handlers, topics of events, queues, recurring tasks."""
