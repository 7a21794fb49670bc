"""Members that were killed: a group that has forgotten them need not wait for the end of their sessions."""

from __future__ import annotations

from wire_client import WireClient

from ottla_wire.protocol import ApiKey


def forget_members(bootstrap_servers: str, group: str) -> None:
    """Do at once what the coordinator does when a session ends, to all members that a group has now.

    As an administrator removes members (KIP-345). The group is one of the classic protocol, in a cluster of one broker.
    """
    client = WireClient(bootstrap_servers)
    try:
        (described,) = client.call(
            ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group], "include_authorized_operations": False}
        ).groups
        members = [
            {"member_id": member.member_id, "group_instance_id": member.group_instance_id, "reason": "killed"}
            for member in described.members
        ]
        left = client.call(ApiKey.LEAVE_GROUP, 5, {"group_id": group, "members": members})
        assert left.error_code == 0, left
    finally:
        client.close()
