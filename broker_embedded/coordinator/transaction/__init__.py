"""The transaction coordinator: who may write under a transactional id, and how each transaction ends.

`states` is the table, `decisions` the rules (pure), `shard` one partition of `__transaction_state`, `markers` and
`marker_writer` tell the leaders of the data, `coordinator` puts them together for a broker.
"""
