"""Hands records to a handler, and reads what the handler made of them."""
