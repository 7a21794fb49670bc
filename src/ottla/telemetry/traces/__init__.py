"""Spans of records, and trace contexts in their headers."""
