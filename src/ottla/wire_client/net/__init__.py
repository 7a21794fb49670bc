"""One connection to one broker: TLS, SASL, requests in flight, and checks of an address."""
