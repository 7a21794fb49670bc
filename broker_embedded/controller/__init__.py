"""Turns requests into metadata records; placement of replicas; the log that makes them durable."""
