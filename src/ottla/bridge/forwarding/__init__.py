"""A message into a record, and what its publisher is answered."""
