"""Permissions and quotas of clients."""
