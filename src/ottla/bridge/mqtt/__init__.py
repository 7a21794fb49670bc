"""MQTT 3.1.1 and 5.0: packets, framing and sessions, without a socket or a clock."""
