"""Values as columns: Avro and Protobuf column-wise, every other serde row by row."""
