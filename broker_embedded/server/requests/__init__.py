"""From a request frame to its response: the table of APIs, decoding, quotas, and forwarding to the controller."""
