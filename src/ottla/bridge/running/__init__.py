"""Runs roads: settings, health, reload, stop."""
