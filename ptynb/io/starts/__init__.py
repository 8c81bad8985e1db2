"""Starting from the results of other packages: one package a file; `start_from` finds the right one by content."""
