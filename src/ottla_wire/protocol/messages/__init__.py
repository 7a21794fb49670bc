"""One module per API: its versions, what changed when, and its fields in the notation of `protocol.schema`."""
