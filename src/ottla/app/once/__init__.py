"""Handles each record once: by an inbox in a database, or by a transaction of the group."""
