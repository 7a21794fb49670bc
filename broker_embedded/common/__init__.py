"""What every layer of the broker shares: settings, clock, errors, small types, file systems."""
