"""What every coordinator needs: shards that follow partition leadership, loading, appending, timers."""
