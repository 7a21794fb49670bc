"""The threads of a share group's member, and what they send to brokers."""
