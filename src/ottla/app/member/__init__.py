"""A member of a consumer group: the shared core of both shells, its workers, and its client's commands."""
