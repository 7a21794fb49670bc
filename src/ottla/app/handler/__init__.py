"""What a handler is: its signature, its annotations, what it is called with, and its middleware."""
