"""Kafka clients for the simulation: small, asyncio only, and honest about what they were told."""
