"""Files of others, one format a file: what each says of a scan."""
