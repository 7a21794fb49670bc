"""A record with a NUL in a header's name, which no producer sends, is a dead letter like any other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ottla import App, RetryPolicy, columnar


def test_a_record_with_such_a_header_is_dead_lettered_with_the_name_escaped(
    shell: Any, kafka: Any, make_topic: Any, wait: Any
) -> None:
    topic, dead = make_topic("in"), make_topic("dead")
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.table({"value": ["v"], "headers": pa.array([[{"key": "a\0b", "value": b"x"}]], kind)})
    columnar.write(topic, rows, bootstrap_servers=kafka.bootstrap_servers)
    app = App(
        kafka.fresh_name("g"),
        bootstrap_servers=kafka.bootstrap_servers,
        dead_letter_topic=dead,
        retry=RetryPolicy(max_attempts=1),
    )

    @app.handler(topic)
    def fails(value: bytes) -> None:
        raise RuntimeError("no")

    shell.start(app)
    wait(lambda: kafka.consume_all(dead), timeout_s=30)
    (letter,) = kafka.consume_all(dead)
    assert letter.value == b"v"
    assert any(name.startswith("a") and "\0" not in name for name, _ in letter.headers)
