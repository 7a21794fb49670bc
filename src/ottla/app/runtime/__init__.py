"""Runs an app: opens and closes what it declares, and answers signals."""
