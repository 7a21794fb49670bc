"""Handlers on share groups: what `App.queue` declares, what becomes of a job, and the member that runs it."""
