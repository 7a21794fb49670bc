"""Administration over confluent-kafka: topics, ACLs, reading and writing a topic without a group, redrive."""
