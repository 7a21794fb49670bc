"""Membership of a consumer group in both protocols, and a group's offsets."""
