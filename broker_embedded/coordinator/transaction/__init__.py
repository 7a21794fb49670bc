"""The transaction coordinator: producers of a transactional id, and the outcome of each transaction.

`states` is the table, `decisions` the rules (pure), `shard` one partition of `__transaction_state`, `markers` and
`marker_writer` tell the leaders of the data, `coordinator` puts them together for a broker.
"""
