"""Records of `__consumer_offsets` that the classic protocol writes.

A key's version tells its kind: 0 and 1 are offset commits, 2 is a group's metadata.
"""

from __future__ import annotations

RECORDS = """
record OffsetCommitKey  0-1
    group      string
    topic      string
    partition  int32

record OffsetCommitValue  0-4  flexible=4+
    offset            int64
    leader_epoch      int32  3+ =-1
    metadata          string
    commit_timestamp  int64
    expire_timestamp  int64  1 =-1
    topic_id          uuid   4+ @0

record GroupMetadataKey  2
    group  string

record GroupMetadataValue  0-4  flexible=4+
    protocol_type            string
    generation               int32
    protocol                 string?
    leader                   string?
    current_state_timestamp  int64  2+ =-1
    members                  [MemberMetadata]
    struct MemberMetadata
        member_id          string
        group_instance_id  string?  3+ =null
        client_id          string
        client_host        string
        rebalance_timeout  int32    1+ =-1
        session_timeout    int32
        subscription       bytes
        assignment         bytes
"""
