"""The commands that see and change a cluster: topics, groups, the cluster itself, and the doctor.

Each stands on `ottla.admin`, which a command imports when it runs: `--help` imports click alone.
"""
