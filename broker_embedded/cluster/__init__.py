"""A cluster of embedded brokers in this process."""

from broker_embedded.cluster.embedded import EmbeddedCluster

__all__ = ["EmbeddedCluster"]
