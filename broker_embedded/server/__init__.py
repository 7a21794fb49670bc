"""One broker: `broker` puts it together out of the rooms here. `apis` has one file per API."""
