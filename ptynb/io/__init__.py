"""Files in and out: one format a file; `load.load` finds the right one by the file's content."""
