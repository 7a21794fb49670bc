"""What is committed, when, and by which names."""
