"""Health as values: what a probe reports is decided here."""
