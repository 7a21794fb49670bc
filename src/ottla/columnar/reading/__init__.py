"""From a Fetch response to Arrow record batches."""
