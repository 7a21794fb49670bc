"""Pipelines on Spark from the command line."""
