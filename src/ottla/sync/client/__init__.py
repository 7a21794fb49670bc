"""Shared parts of the threaded clients: errors, reachability, callbacks, headers."""
