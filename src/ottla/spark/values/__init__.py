"""Values of rows: non-throwing decoding, schemas, dead letters."""
