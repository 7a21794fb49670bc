"""What this node asks of the others: connections to them, the way to the active controller, and requests to it."""
