"""Topics as DataFrames: the source, its plans, and Spark's own connector where it is there."""
