"""Shared by all coordinators: shards that follow partition leadership, loading, appending, timers."""
