"""A schema registry for tests and demos: Confluent's REST API on loopback, schemas kept in a compacted topic.

    with EmbeddedRegistry(kafka.bootstrap_servers) as registry:
        Avro(Order, registry=registry.url)

The topic is `_schemas`, with Confluent's keys and values, so that a restarted registry knows what the last one knew.
Without an address the schemas are kept in memory only.

Served: subjects, versions, schemas by id, references, lookup, soft delete, configuration and compatibility.
Compatibility is checked for Avro, JSON Schema and Protobuf. What the rules cannot compare (JSON Schemas with
references) is refused as the next version of a subject. Not served: permanent deletion, modes, contexts, exporters,
rules.
"""

from ottla.testing.registry.server import EmbeddedRegistry as EmbeddedRegistry
