"""Reads records: plans fetches, parses responses, and filters by isolation level."""
