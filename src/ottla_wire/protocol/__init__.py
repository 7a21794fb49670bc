"""Kafka's protocol: keys, errors, message tables and the codec compiled from them.

    body = codec.decode_request(ApiKey.METADATA, 12, frame, header.body_offset)
    for part in headers.encode_response_frame(ApiKey.METADATA, 12, header.correlation_id, {"topics": [...]}): ...

Values on the Python side: integers, `str`, `bytes`, `bool`, `float`, lists, nested messages; a uuid is 16 `bytes`;
records are a `memoryview` into the frame. Null is None.
"""

from __future__ import annotations

from ottla_wire.protocol.api_keys import ApiKey as ApiKey
from ottla_wire.protocol.errors import ErrorCode as ErrorCode
from ottla_wire.protocol.exceptions import FrameTooLarge as FrameTooLarge
from ottla_wire.protocol.exceptions import ProtocolError as ProtocolError
from ottla_wire.protocol.exceptions import SchemaError as SchemaError
from ottla_wire.protocol.exceptions import UnsupportedVersion as UnsupportedVersion
from ottla_wire.protocol.message import Message as Message
from ottla_wire.protocol.primitives import ZERO_UUID as ZERO_UUID
