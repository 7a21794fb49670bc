"""Share groups (KIP-932) on the leaders of partitions: the leases of records, and when they end.

The members of a share group read the same partitions. Each record is leased to one of them for a time, then accepted,
released or rejected. `states` has the table of a record's states, `partition` decides for one share partition (a group
on a topic partition) without input or output, `share_partitions` runs all of a broker's.
"""
