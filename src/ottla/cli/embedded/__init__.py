"""The embedded broker from the command line."""
