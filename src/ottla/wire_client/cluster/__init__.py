"""Finds brokers, leaders and coordinators, and sends requests to them."""
