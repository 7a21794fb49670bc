"""Which record a message becomes: rules, templates, headers."""
