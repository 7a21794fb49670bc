"""Delayed messages: a timing wheel whose slots are partitions of a topic. Pure: the shells read, write and wait."""
