"""Running an app on an event loop: its topics, its members, its stop."""
