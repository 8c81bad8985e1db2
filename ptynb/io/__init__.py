"""Reading and writing files: one module per format; `load.load` selects the format by the file's content."""
