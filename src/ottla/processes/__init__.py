"""Clients across fork and exit: a child refuses inherited clients, and records in flight get a few seconds at exit."""
