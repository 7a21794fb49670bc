"""From Arrow tables to record batches at the leaders of their partitions."""
