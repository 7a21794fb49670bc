"""Every message in every version against bytes that another implementation made.

`golden_messages.txt` was made once with kio (generated from Kafka's own definitions), what is newer with the message
classes of Apache Kafka 4.4, from `samples.fixed_body`:
a line per API, version, direction and kind of sample, then the bytes in hexadecimal.
"""

from __future__ import annotations

from pathlib import Path

import message_samples as samples

GOLDEN = Path(__file__).with_name("golden_messages.txt")


def golden_lines():
    for line in GOLDEN.read_text().splitlines():
        api, version, direction, kind, content = line.split(" ")
        yield f"{api}-{version}-{direction}", kind, bytes.fromhex(content)


def test_every_message_encodes_to_the_golden_bytes(message_cases):
    wrong = []
    for name, kind, expected in golden_lines():
        case = message_cases[name]
        body = samples.fixed_body(case.schema, case.version, nulls=kind == "nulls")
        encoded = case.encode(body)
        if encoded != expected:
            wrong.append(f"{name} {kind}: {encoded.hex()} instead of {expected.hex()}")
    assert not wrong, "\n".join(wrong)


def test_the_golden_bytes_of_every_message_decode_to_the_sample_they_were_made_from(message_cases):
    for name, kind, content in golden_lines():
        case = message_cases[name]
        body = samples.fixed_body(case.schema, case.version, nulls=kind == "nulls")
        assert case.decode(content).to_dict() == body, (name, kind)


def test_no_message_is_without_golden_bytes(message_cases):
    covered = {name for name, _, _ in golden_lines()}
    assert covered == set(message_cases)
