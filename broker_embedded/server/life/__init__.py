"""A broker's registration, background work and shutdown."""
