"""Committed offsets: what is kept, who may change it, and when it is forgotten."""
