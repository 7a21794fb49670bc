"""This node's requests to others: connections, the active controller, and forwarding."""
