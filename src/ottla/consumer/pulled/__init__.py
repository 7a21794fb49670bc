"""The core of the pulled consumers: callers take records, and settle each of them later."""
