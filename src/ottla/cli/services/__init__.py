"""Services, their settings and their delayed messages from the command line."""
