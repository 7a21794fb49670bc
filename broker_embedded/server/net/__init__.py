"""Sockets, and the bytes on them: listening, connections, frames in, responses out, TLS."""
