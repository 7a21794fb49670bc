"""A handler's parts: its signature, its annotations, its context, and its middleware."""
