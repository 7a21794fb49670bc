"""Kafka's wire protocol and record batches as sans-IO code: bytes in, values out, and back.

No sockets, no threads, and time is an argument. Both the SDK and the embedded broker stand on it.
"""
