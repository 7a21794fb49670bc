"""Coordinators: state machines over internal topics.

`runtime` runs one shard per partition of an internal topic that this broker leads: it replays the partition, appends
what the shard wants kept and answers when the high watermark has passed it. `group` holds the group coordinator.
"""
