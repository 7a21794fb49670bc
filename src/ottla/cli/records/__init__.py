"""What `ottla consume` and `ottla produce` are made of.

Pure: `where` (filters), `where_tokens`, `template` (kcat's formats), `record_json` (records as JSON and back), `spans`
(which offsets are meant). With sockets: `reading`, `writing`, `schemas` (a registry). `consume` and `produce` beside
this folder are the commands.
"""
