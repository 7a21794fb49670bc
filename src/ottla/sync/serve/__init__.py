"""Running an app in threads: its topics, its members, its health page, its stop."""
