"""What follows from a finished run: retries, dead letters, stops."""
