"""What all commands share: how they reach a cluster, what they print, how they ask, and how they end.

`cluster_options.reaches_a_cluster` gives a command its options and its settings, `output.prints` its `--format`,
`consent.changes` its `--dry-run` and `--yes`, `groups.CommandGroup` suggestions for typos. Nothing here is imported
beyond click and the standard library until a command needs it, so that `ottla --help` answers at once.
"""
