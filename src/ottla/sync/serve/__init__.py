"""Running an app in threads: its topics, its engines, its health page, its stop."""
