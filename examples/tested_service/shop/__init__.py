"""The service: types of its messages, its rules, and how it runs."""
