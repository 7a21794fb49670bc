"""What Spark wrote into a query's checkpoint, start offsets, and changes to both."""
