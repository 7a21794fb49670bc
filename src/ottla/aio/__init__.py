"""The asyncio shell, over aiokafka: the only package that imports it. Same file names as `ottla.sync`."""
