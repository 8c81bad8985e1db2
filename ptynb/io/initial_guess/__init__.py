"""Starting from the results of other packages: a file each; `load_initial_guess` finds the right one by content."""
