"""Services over columns: a member of a group over the wire client, and handlers that get Arrow batches."""
