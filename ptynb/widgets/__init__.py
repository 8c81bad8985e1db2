"""What a notebook shows: the only importer of ipywidgets."""
