"""The listener that MQTT publishers connect to."""
