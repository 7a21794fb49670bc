"""What a listener makes of a CONNECT, and says in its CONNACK."""

from __future__ import annotations

from ottla.bridge.mqtt.codes import V5, Property, Reason
from ottla.bridge.mqtt.listener_limits import ListenerLimits
from ottla.bridge.mqtt.packets import Connect
from ottla.bridge.mqtt.primitives import PacketError, Properties

_REASON_PACKET_BYTES = 1_024
"""A client whose packets must be smaller gets reason codes without words."""


def wants_reasons(connect: Connect) -> bool:
    """Return whether a client takes reasons in words."""
    return (
        connect.version == V5
        and connect.properties.get(Property.REQUEST_PROBLEM, 1) != 0
        and connect.properties.get(Property.MAXIMUM_PACKET_SIZE, _REASON_PACKET_BYTES) >= _REASON_PACKET_BYTES
    )


def check_connect(connect: Connect, limits: ListenerLimits) -> None:
    """Raise `PacketError` for a CONNECT that the listener does not take."""
    if Property.AUTH_METHOD in connect.properties:
        raise PacketError(Reason.BAD_AUTH_METHOD, "extended authentication is not supported")
    if not connect.client_id and connect.version != V5 and not connect.clean_start:
        raise PacketError(Reason.BAD_CLIENT_ID, "an empty client id without a clean session")
    if len(connect.client_id) > limits.max_client_id:
        raise PacketError(Reason.BAD_CLIENT_ID, f"a client id of {len(connect.client_id):,} characters")


def limits_of_listener(connect: Connect, limits: ListenerLimits, client_id: str) -> Properties:
    """Return the properties of the CONNACK to a client of 5.0, whose id is now `client_id`."""
    found: Properties = {
        Property.RECEIVE_MAXIMUM: limits.receive_maximum,
        Property.MAXIMUM_PACKET_SIZE: limits.max_packet_bytes,
        Property.TOPIC_ALIAS_MAXIMUM: limits.topic_alias_maximum,
        Property.WILDCARDS_AVAILABLE: 0,
        Property.SUBSCRIPTION_IDS_AVAILABLE: 0,
        Property.SHARED_SUBSCRIPTIONS_AVAILABLE: 0,
    }
    if limits.max_qos < 2:
        found[Property.MAXIMUM_QOS] = limits.max_qos
    if client_id != connect.client_id:
        found[Property.ASSIGNED_CLIENT_ID] = client_id
    if connect.properties.get(Property.SESSION_EXPIRY, 0) > limits.max_session_expiry_s:
        found[Property.SESSION_EXPIRY] = limits.max_session_expiry_s
    return found
