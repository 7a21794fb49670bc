"""One assigned partition: buffers, offsets, lanes, its place in the log."""
