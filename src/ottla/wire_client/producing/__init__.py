"""Writes record batches, in transactions or without."""
