"""The threaded shell, over confluent-kafka: the only package that imports it. Same file names as `ottla.aio`."""
