"""The subscriber of an MQTT broker."""
