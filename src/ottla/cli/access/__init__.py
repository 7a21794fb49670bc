"""What clients may do and use: permissions and quotas."""
