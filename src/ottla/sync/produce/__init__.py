"""The threaded producer: its ways into librdkafka, deliveries, transactions."""
