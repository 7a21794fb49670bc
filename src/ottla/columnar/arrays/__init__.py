"""Arrow arrays from bytes and back: varints, headers, the columns of a read."""
