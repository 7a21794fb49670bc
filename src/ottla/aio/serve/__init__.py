"""Running an app on an event loop: its topics, its engines, its stop."""
