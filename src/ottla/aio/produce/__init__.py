"""The asyncio producer: its ways into aiokafka, deliveries, transactions."""
