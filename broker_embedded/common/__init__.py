"""Shared by every layer of the broker: settings, clock, errors, small types, file systems."""
