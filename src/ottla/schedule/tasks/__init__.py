"""Recurring tasks of a schedule: their due times, their records, and what their owner dispatches. Pure but for
`task_work` and `reading`."""
