"""Facts about a cluster at one moment: frozen, read from brokers, and the rates between two samples."""
