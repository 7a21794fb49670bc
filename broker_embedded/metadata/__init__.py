"""The one truth about brokers, topics, partitions and configs: records, the image that replays them, the delta."""
