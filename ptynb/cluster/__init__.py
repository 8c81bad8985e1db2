"""Engine processes: start, connection, supervision and end."""
