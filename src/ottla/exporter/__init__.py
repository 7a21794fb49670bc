"""`ottla exporter`: what is known of a cluster as metrics, in Prometheus' text format."""
