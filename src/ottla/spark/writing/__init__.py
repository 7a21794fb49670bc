"""DataFrames into topics, at least once or exactly once."""
