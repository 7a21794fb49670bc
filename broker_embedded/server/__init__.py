"""Sockets, dispatcher and one file per API."""
