"""An embedded Kafka broker: Kafka's wire protocol and Kafka's files, on loopback."""
